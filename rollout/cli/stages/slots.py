"""FleetLock's slots from outside of a server: seen, and taken away by hand."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rollout.cli import wiring
from rollout.cli.settings.schema import Cluster
from rollout.cli.stages.gather import with_patience
from rollout.cli.terminal import say
from rollout.errors import BlockedError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rollout.model.cluster import Node
    from rollout.model.fleetlock import Slots
    from rollout.ports import ClusterApi

_PAUSE = 0.5
# A host that was granted a moment ago is given a minute to go down, which its server waits for.
_LONGEST = 120.0
_ALONE = 15.0


@dataclass(frozen=True, slots=True)
class Seen:
    """The slots, the nodes by name, and which server works on them; empty where none does."""

    slots: "Slots"
    nodes: "Mapping[str, Node]"
    server: str


def look(cluster: Cluster, namespace: str) -> Seen:
    """How they stand now."""
    from rollout.gather.cluster.slots import read_slots
    from rollout.gather.cluster.snapshot import read_nodes

    api = wiring.cluster_api(cluster)
    slots = with_patience(lambda: read_slots(api, namespace)).slots
    nodes = with_patience(lambda: read_nodes(api))
    return Seen(slots, {node.name: node for node in nodes}, _server(api, namespace))


def _server(api: "ClusterApi", namespace: str) -> str:
    """Which FleetLock server holds the lock; empty where none does."""
    from rollout.execution.lease import read_lease
    from rollout.model.fleetlock import is_fleetlock_run

    lease = with_patience(lambda: read_lease(api, namespace))
    return lease.holder if is_fleetlock_run(lease.run) else ""


def release(cluster: Cluster, namespace: str, node: str) -> bool:
    """Take the node's slot away, and wait for what its server makes of that; False where it holds none.

    `BlockedError` where no server does it.
    """
    from rollout.execution.record.memory import change_slots
    from rollout.gather.cluster.slots import read_slots
    from rollout.gather.cluster.snapshot import read_nodes

    api = wiring.cluster_api(cluster)
    slot = with_patience(lambda: read_slots(api, namespace)).slots.of_node(node)
    if slot is None:
        _refuse_strangers(node, {known.name for known in with_patience(lambda: read_nodes(api))})
        return False
    run = slot.run
    with_patience(lambda: change_slots(api, namespace, lambda slots: slots.changed(run, released=True)))
    say(f"{node}: waiting for its server to give it back")
    began = time.monotonic()
    while with_patience(lambda: read_slots(api, namespace)).slots.of_run(run) is not None:
        waited = time.monotonic() - began
        if waited > _LONGEST or (waited > _ALONE and not _server(api, namespace)):
            raise BlockedError(
                f"the slot of {node} is to be freed, and no server has done it yet",
                hint="The first server that runs does; without one: rollout abort",
            )
        wiring.system_clock().sleep(_PAUSE)
    return True


def _refuse_strangers(node: str, known: set[str]) -> None:
    if node not in known:
        raise InputError(f"there is no Node {node}", hint="See: rollout fleetlock status")
