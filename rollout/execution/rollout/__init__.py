"""A whole rollout: its waves, settling between them, rehearsing it, and undoing one that was interrupted."""
