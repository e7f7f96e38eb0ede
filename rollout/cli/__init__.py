"""The command line: options, one file per command, and the wiring of adapters."""
