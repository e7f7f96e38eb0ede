"""Check every precondition of a rollout."""
