"""Waits for a host whose Node was deleted during its reboot.

Some cloud controllers delete the Node of a machine that is down. Its kubelet registers a Node with
another UID when it starts, so the host keeps its slot until then. If it stays away, the machine was
removed: that is no failure, and its slot is freed.
"""

from collections.abc import Callable

from rollout.errors import ApiNotFoundError
from rollout.execution.base.deadline import Guard, PatientApi
from rollout.execution.node.failures import NodeFailure, NodeRemovedError
from rollout.execution.node.rejoin import DID_NOT_COME_BACK, absence_seconds
from rollout.gather.cluster.snapshot import read_node
from rollout.model.cluster import Node
from rollout.model.fleetlock import Awaited, Slot, zincati_id
from rollout.model.progress import Outcome
from rollout.model.quantity import Duration
from rollout.ports import ClusterApi

_PAUSE = 1.0
# The waits during which the host may be down.
IN_REBOOT = frozenset({Awaited.BOOT, Awaited.CALM, Awaited.READY, Awaited.REPORT})
CREATED_AGAIN = "its Node was deleted and created again: its host has to ask again"


def await_reregistration(
    cluster: PatientApi,
    check_may_act: Guard,
    slot: Slot,
    timeout: Duration,
    *,
    is_given_up: Callable[[], bool],
) -> Node:
    """Return the Node that the slot's machine registers after another boot.

    Raises `NodeRemovedError` if none is registered in time, and `NodeFailure` if the machine
    registers from its old boot.
    """
    deadline = cluster.deadline(absence_seconds(timeout))
    while True:
        check_may_act()
        node = cluster.ask(lambda api: _find_node(api, slot))
        if node is not None and node.boot_id == slot.boot_id:
            raise NodeFailure(Outcome.SKIPPED, CREATED_AGAIN)
        if node is not None and node.boot_id:
            return node
        if deadline.expired or is_given_up():
            raise NodeRemovedError(DID_NOT_COME_BACK)
        deadline.pause(_PAUSE)


def _find_node(api: ClusterApi, slot: Slot) -> Node | None:
    try:
        node = read_node(api, slot.node)
    except ApiNotFoundError:
        return None
    return node if zincati_id(node.machine_id) == slot.id else None
