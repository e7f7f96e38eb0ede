"""A rollout: its waves, settling between them, its rehearsal, and undoing an interrupted one."""
