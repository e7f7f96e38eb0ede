"""Options that are no settings: of one command, or of a few."""
