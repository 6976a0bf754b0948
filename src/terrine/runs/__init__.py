"""A run: a TOML file in, a directory with a student, its guarantee and a report out; each stage can be resumed."""
