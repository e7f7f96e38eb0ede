"""One row a node: what `rollout status` shows, field for field its JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rollout.model.cluster import Node
from rollout.model.host import Host, HostFacts, HostObservation, ProbeFailure
from rollout.model.node_marks import deferral, is_deferred
from rollout.model.own_node import OwnNode
from rollout.model.policy import Policy, Pool, Selection
from rollout.planning.eligibility import Candidate, exclusion
from rollout.planning.naming import natural_key
from rollout.planning.pools import Pools, pools_of


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node's state. `reason` is why it would not be part of a plan; `error` why its host gave no facts.

    `pool` is the settings file's that it belongs to; empty where there are none. `deferred` is by whom, and since when,
    it was left for a run from elsewhere; empty where it was not.
    """

    node: str
    host: str
    ready: bool
    schedulable: bool
    needs_reboot: bool
    operation: str
    running_version: str
    staged_version: str
    boot_id: str
    reason: str
    error: str
    pool: str = ""
    deferred: str = ""


def node_statuses(
    nodes: Sequence[Node],
    hosts: Mapping[str, Host],
    observations: Mapping[str, HostObservation],
    own_rules: Sequence[Pool] = (),
    own_node: OwnNode | None = None,
) -> tuple[NodeStatus, ...]:
    """Rows in the natural order of names; hosts and observations are by Node name. `own_rules` are the pools."""
    pools = pools_of(Policy(pools=tuple(own_rules)))
    ordered = sorted(nodes, key=lambda node: natural_key(node.name))
    return tuple(_row(node, hosts.get(node.name), observations.get(node.name), pools, own_node) for node in ordered)


def _row(
    node: Node, host: Host | None, observation: HostObservation | None, pools: Pools, own_node: OwnNode | None
) -> NodeStatus:
    facts = observation if isinstance(observation, HostFacts) else None
    objection = exclusion(Candidate(node, observation, pools.rules_for(node.labels), Selection(), own=own_node))
    return NodeStatus(
        node=node.name,
        host=host.address if host else "",
        ready=node.is_ready,
        schedulable=not node.unschedulable,
        needs_reboot=facts is not None and facts.update.needs_reboot,
        operation=facts.update.operation.value if facts else "",
        running_version=facts.running_version if facts else "",
        staged_version=facts.update.new_version if facts and facts.update.needs_reboot else "",
        boot_id=facts.boot_id if facts else node.boot_id,
        reason=f"{objection.reason}: {objection.message}" if objection else "",
        error=observation.message if isinstance(observation, ProbeFailure) else "",
        pool=pools.of(node.labels),
        deferred=_deferred(node),
    )


def _deferred(node: Node) -> str:
    mark = deferral(node)
    words = (f"{word} {mark[name]}" for word, name in (("by", "by"), ("at", "at")) if name in mark)
    return " ".join(("left for a run from another node", *words)) if is_deferred(node) else ""
