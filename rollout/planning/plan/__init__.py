"""Make a plan, explain it, read and write it, compare it with the cluster, and continue it."""
