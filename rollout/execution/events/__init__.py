"""What becomes of a node, told on it as Kubernetes Events."""
