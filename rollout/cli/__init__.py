"""The command line: commands, their settings and stages, and the wiring of adapters."""
