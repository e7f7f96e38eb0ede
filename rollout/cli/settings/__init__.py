"""The settings: one schema for flags, variables, the file, `--set` and the reference page."""
