"""Private labels over the network: the app, its keys and dashboard, and a client that asks like a local labeller."""
