"""What a rollout leaves on the cluster for whoever goes on with it, and what an interrupted one has left."""
