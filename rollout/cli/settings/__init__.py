"""One schema of settings for flags, variables, the file, `--set` and the reference page."""
