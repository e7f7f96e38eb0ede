"""A rollout as metrics for Prometheus: what they are, what events make of them, and how they reach their places."""
