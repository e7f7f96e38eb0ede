"""The manifests for running rollout in a cluster."""
