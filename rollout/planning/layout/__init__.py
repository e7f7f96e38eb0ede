"""Which nodes go together, in waves or one after another, and in which order."""
