"""Changes to the cluster: a state machine per node, in waves, guarded by the Lease."""
