"""Settings beside the flags: rollout.toml and the environment."""
