"""The manifests that run rollout in a cluster."""
