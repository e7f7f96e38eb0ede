"""Who takes part, and why not: hosts, marks, memory, rivals, pools, the limit, the control plane, windows."""
