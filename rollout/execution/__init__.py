"""Acting on the cluster: one state machine a node, waves side by side, each act fenced by the Lease."""
