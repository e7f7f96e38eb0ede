"""Changes to the cluster: a state machine per node, in waves, guarded by the Lease.

What is stored, by whom, and for how long:

marks
    Annotations on a Node, written by its steps before each act. They are removed when the node is
    returned; only its last result stays.
record
    The plan of the rollout and the health before its current wave, in a ConfigMap. `Rollout` writes
    it before the first node starts. At the end it is removed, or marked as ended if anything is
    left to continue.
memory
    Failed nodes, held versions and pauses, in a ConfigMap. `RunMemory` and commands such as pause
    and release write it. It outlives rollouts.
ledger
    The results of this process so far, in memory. `WaveRunner` adds them.
inheritance
    What an earlier process has left, read from the marks and the record before the plan is run. It
    is never written.
journal
    All events in a local file, written by an observer of the command line. It explains; nothing is
    decided by it.
"""
