"""How long things take in the simulated cluster; real clusters' defaults, in simulated seconds."""

import msgspec


class Timings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Durations in simulated seconds; a scenario may override any of them.

    `node_grace` is how long a node may be silent before it is called Unknown, looked at every
    `node_monitor`; `orphan_grace` is how long the pods of a Node that was deleted stay; `budget_lag` and
    `retry_unschedulable` are how far those controllers trail the changes.
    """

    heartbeat: float = 10
    status_report: float = 300
    node_monitor: float = 5
    node_grace: float = 40
    orphan_grace: float = 40
    kubelet_start: float = 1
    kubelet_ready: float = 5
    startup_min: float = 2
    startup_max: float = 4
    termination_min: float = 1
    termination_max: float = 2.5
    kubelet_sync: float = 1
    job_seconds: float = 20
    budget_lag: float = 0.2
    retry_unschedulable: float = 0.5
    volume_detach: float = 2
    disruption_expiry: float = 120
    eviction_by_taint: int = 300
