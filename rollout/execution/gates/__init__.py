"""What may hold a node, a wave or the whole rollout up."""
