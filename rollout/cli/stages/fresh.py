"""Prepare a new rollout: refuse what must not start, read the cluster, ask the hosts, plan."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rollout.cli.stages import refusals
from rollout.cli.stages.cluster import Connections, read_cluster
from rollout.cli.stages.hosts import ask_hosts
from rollout.cli.stages.observers import observe_cluster
from rollout.cli.stages.prepare import PreparedRun, prepare
from rollout.cli.stages.request import Request
from rollout.execution.record.memory import require_memory
from rollout.execution.record.unfinished import Unfinished
from rollout.model.cluster import ClusterSnapshot
from rollout.planning.eligibility.evidence import Proven

if TYPE_CHECKING:
    from rollout.report.metrics import Metrics


@dataclass(frozen=True, slots=True)
class FreshRun:
    """A new run, the cluster that it is planned for, and the ended rollout that it replaces."""

    prepared: PreparedRun
    snapshot: ClusterSnapshot
    replaced: Unfinished | None


def prepare_fresh(
    connections: Connections,
    request: Request,
    metrics: "Metrics | None",
    *,
    may_replace_stopped: bool,
    proven: Proven | None = None,
) -> FreshRun:
    """Raise `BlockedError` or `LockedError` if no rollout may start."""
    api = connections.api
    namespace = request.namespace
    refusals.refuse_without_rights(api, namespace, request.policy, unattended=request.unattended)
    snapshot = read_cluster(api, namespace, warns=False)
    require_memory(snapshot.memory)
    replaced = refusals.replaceable_unfinished(
        api, namespace, snapshot.nodes, may_replace_stopped=may_replace_stopped
    )
    targets = ask_hosts(connections, request, snapshot.nodes)
    observe_cluster(metrics, targets.observations, snapshot.memory)
    return FreshRun(prepare(request, snapshot, targets, proven), snapshot, replaced)
