"""Settings: one schema, from which come flags, variables, the file, `--set`, the reference page and a JSON Schema."""
