"""Private labels over a wire: the app, its keys and dashboard, and a client that asks like a local labeller."""
