"""What a rollout stores on the cluster, and what an interrupted one has left there."""
