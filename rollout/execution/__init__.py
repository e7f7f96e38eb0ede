"""Changes to the cluster: a state machine per node, in waves, under the lock.

`rollout/run.py` gives an overview, from a plan to the result of a node.
"""
