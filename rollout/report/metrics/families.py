"""Every metric that there is, with what it means and its labels: documents, alert rules and tests go by this table.

Units are base units. Labels have few values each: nodes of one cluster, pools and fixed words; budgets are bounded.
Each metric has the label `cluster` as well, which comes first.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a metric is to Prometheus."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """A metric; `labels` are those beside `cluster`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


def _gauge(name: str, meaning: str, *labels: str) -> Family:
    return Family(f"node_rollout_{name}", Kind.GAUGE, meaning, labels)


def _counter(name: str, meaning: str, *labels: str) -> Family:
    return Family(f"node_rollout_{name}_total", Kind.COUNTER, meaning, labels)


def _histogram(name: str, meaning: str, *labels: str) -> Family:
    return Family(f"node_rollout_{name}_seconds", Kind.HISTOGRAM, meaning, labels)


BUILD = _gauge("build_info", "The version of rollout that wrote this.", "version")
CLUSTER = _gauge("cluster_info", "The API server and the UID of kube-system.", "server", "uid", "kubernetes")
REBOOT_REQUIRED = _gauge(
    "reboot_required", "Whether an update is staged on the node and waits for a reboot: 1 or 0.", "node"
)
VERSION_HELD = _gauge("version_held", "1 for each version that is held: no node is taken to it.", "version")
RUNNING = _gauge("running", "Whether a rollout is under way: 1 or 0.")
NODES = _gauge("nodes", "Planned nodes of the current or last rollout, by the phase they are in.", "phase", "pool")
FINISHED = _gauge("finished_nodes", "Those of them that have ended, by outcome.", "outcome", "pool")
EXCLUDED = _gauge("excluded_nodes", "Selected nodes that the plan leaves out, by reason.", "reason", "pool")
PHASE_START = _gauge(
    "node_phase_start_timestamp_seconds", "When a node in flight came into its phase.", "node", "phase"
)
WAVE = _gauge("wave", "The wave that runs, or ran last; 0 before the first.")
WAVES = _gauge("waves", "Waves of the current or last rollout.")
HELD_EVICTIONS = _gauge("held_evictions", "Evictions that are held now, by budget (namespace/name).", "budget")
HOLDS = _counter("eviction_holds", "Evictions that had to wait, each counted once, by budget.", "budget")
DRAIN = _histogram("drain_duration", "How long drains took that emptied their node.", "pool")
REBOOT = _histogram("reboot_duration", "From the command to reboot until the node was proven and Ready.", "pool")
FAILURES = _counter("node_failures", "Nodes that failed, by the phase in which they did.", "phase", "pool")
LATE = _gauge("deadline_late_seconds", "By how much the forecast misses operate.finish-by; 0: it is in time.")
PASS_START = _gauge("pass_start_timestamp_seconds", "When the pass that is under way began; 0 where none is.")
PASSES = _counter("passes", "Passes that have ended, by result; a run of apply or resume is one.", "result")
LAST_PASS = _gauge("last_pass_timestamp_seconds", "When the last pass ended.")
LAST_RESULT = _gauge("last_pass_result", "1 for the result of the last pass, 0 for the others.", "result")
LAST_SUCCESS = _gauge("last_success_timestamp_seconds", "When a pass last ended with nothing failed or left over.")

FAMILIES = (
    BUILD,
    CLUSTER,
    REBOOT_REQUIRED,
    VERSION_HELD,
    RUNNING,
    NODES,
    FINISHED,
    EXCLUDED,
    PHASE_START,
    WAVE,
    WAVES,
    HELD_EVICTIONS,
    HOLDS,
    DRAIN,
    REBOOT,
    FAILURES,
    LATE,
    PASS_START,
    PASSES,
    LAST_PASS,
    LAST_RESULT,
    LAST_SUCCESS,
)

# Upper bounds, in seconds: drains are quick without budgets, and end at --drain-timeout (10m); a reboot takes minutes.
BUCKETS = {
    DRAIN.name: (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0),
    REBOOT.name: (30.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 900.0, 1800.0),
}
