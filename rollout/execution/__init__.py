"""Changes to the cluster: a state machine per node, in waves, guarded by the Lease.

Where state lives:

marks: annotations on a Node, while it is in progress.
record: the plan, in a ConfigMap, while the rollout is unfinished.
memory: failed nodes, held versions and pauses, in a ConfigMap. It outlives rollouts.
ledger: the results of this process, in memory.
inheritance: what an earlier process has left, as read from marks and record.
journal: all events, in a local file. Nothing is decided by it.
"""
