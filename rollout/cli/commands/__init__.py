"""One module a command: its flags, and the list of its stages."""
