"""What runs rollout in a cluster, as objects for `kubectl apply`: pure, from the rights and the operator's settings."""
