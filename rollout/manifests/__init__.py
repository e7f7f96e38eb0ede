"""The manifests that run rollout in a cluster, made from its rights and settings. Pure."""
