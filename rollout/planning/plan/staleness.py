from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from rollout.model.cluster import Node
from rollout.model.detection import DEFAULT_SOURCES, Detection
from rollout.model.host import HostFacts, HostObservation, ProbeFailure
from rollout.model.plan import PlannedNode, RolloutPlan
from rollout.model.text import joined
from rollout.planning.eligibility.pools import Pools, pools_of
from rollout.planning.plan.build import PlanInputs


class Difference(Struct, frozen=True):
    change: str
    # Differs from node to node, unlike `change`.
    detail: str = ""
    # Empty for the whole cluster.
    node: str = ""

    def __str__(self) -> str:
        detail = f"({self.detail})" if self.detail else ""
        return joined(": ", self.node, joined(" ", self.change, detail))


def find_differences(saved: RolloutPlan, fresh: PlanInputs) -> tuple[Difference, ...]:
    """Return what has changed since the plan was made; none if it may run.

    A new Node counts; a node that the plan leaves out and could now take does not.
    """
    if saved.cluster.uid != fresh.snapshot.identity.uid:
        servers = f"{saved.cluster.server}, not {fresh.snapshot.identity.server}"
        return (Difference("the plan is for another cluster", servers),)
    nodes = {node.name: node for node in fresh.snapshot.nodes}
    pools = pools_of(saved.policy)
    in_plan = {node.name for node in saved.nodes}
    in_plan.update(exclusion.node for exclusion in saved.excluded)
    added = sorted(set(fresh.selected) - in_plan)
    differences = [Difference("a Node that is not in the plan", node=name) for name in added]
    for planned in saved.nodes:
        name = planned.name
        if name not in nodes:
            differences.append(Difference("the Node is gone", node=name))
            continue
        changes = [
            *_node_differences(planned, nodes[name], pools),
            *_host_differences(planned, fresh.observations.get(name)),
        ]
        differences += [replace(change, node=name) for change in changes]
    return tuple(differences)


def _node_differences(planned: PlannedNode, node: Node, pools: Pools) -> Iterator[Difference]:
    pool = pools.pool_of(node.labels)
    if pool != planned.pool:
        yield Difference(f"it was in the pool {planned.pool}, but is in {pool} now")
    if node.uid != planned.node_uid:
        yield Difference("the Node was deleted and created again")
    if node.unschedulable and not planned.was_cordoned:
        yield Difference("it has been cordoned since the plan was made")
    if not node.unschedulable and planned.was_cordoned:
        yield Difference("it was cordoned when the plan was made, but is not cordoned now")


def _host_differences(
    planned: PlannedNode, observation: HostObservation | None
) -> Iterator[Difference]:
    if observation is None:
        yield Difference("its host is no longer known")
    elif isinstance(observation, ProbeFailure):
        yield Difference(f"its host could not be probed: {observation.message}")
    else:
        yield from _fact_differences(planned, observation)


def _fact_differences(planned: PlannedNode, facts: HostFacts) -> Iterator[Difference]:
    if facts.boot_id != planned.boot_id:
        boots = f"boot ID {planned.boot_id} then, {facts.boot_id} now"
        yield Difference("the host has rebooted since the plan was made", boots)
    # Older plans have no machine ID.
    if planned.machine_id and planned.machine_id != facts.machine_id:
        machines = f"machine ID {planned.machine_id} then, {facts.machine_id} now"
        yield Difference("its host is a different machine", machines)
    if facts.running_version != planned.running_version:
        yield Difference(f"it ran {planned.running_version}, but runs {facts.running_version} now")
    yield from _update_differences(planned, facts.detection)


def _update_differences(planned: PlannedNode, detection: Detection) -> Iterator[Difference]:
    if not planned.staged:
        if detection.needs_reboot:
            yield Difference("an update has been staged since the plan was made")
    elif detection.unanswered:
        details = "; ".join(sign.detail for sign in detection.unanswered)
        yield Difference("it is unknown whether it still needs a reboot", details)
    elif not detection.needs_reboot:
        yield Difference(_why_no_longer_needed(planned))
    elif detection.staged_version != planned.staged_version:
        before = planned.staged_version or "an unknown version"
        now = detection.staged_version or "an unknown version"
        yield Difference(f"{before} was staged, but {now} is staged now")


def _why_no_longer_needed(planned: PlannedNode) -> str:
    # Older plans name no sources: update_engine was the only one.
    if planned.detected_by in {(), DEFAULT_SOURCES}:
        return "its staged update is gone"
    return f"it no longer needs a reboot according to {', '.join(planned.detected_by)}"
