"""Data for demonstrations, tests and experiments."""
