"""What an interrupted rollout left, going on with it, and undoing it."""
