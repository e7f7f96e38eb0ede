"""The command line: commands, the options and stages that they share, and the wiring of adapters."""
