"""Finds the Node of a host by its Zincati ID.

Some cloud controllers delete the Node of a machine that is down. Its host holds the slot until a
new Node is registered, or the machine counts as removed.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from datetime import datetime

from rollout.errors import ApiError, ApiNotFoundError, ApiUnavailableError
from rollout.execution.base.deadline import GracefulStop, Guard, PatientApi
from rollout.execution.base.live_view import LiveView, watch_nodes
from rollout.execution.node.failures import NodeFailure, NodeRemovedError
from rollout.execution.node.rejoin import DID_NOT_COME_BACK, absence_seconds
from rollout.gather.cluster.snapshot import read_node
from rollout.gather.hosts.identity import MACHINE_ID_FIX, ambiguous_machine_ids
from rollout.model import marks
from rollout.model.cluster import ClusterIdentity, Node
from rollout.model.fleetlock import Awaited, Slot, zincati_id
from rollout.model.host import Host, HostFacts, UpdateOperation, UpdateStatus
from rollout.model.node_marks import announced_version
from rollout.model.plan import FORMAT_VERSION, PlannedNode, PlanSummary, RolloutPlan, Wave
from rollout.model.policy import Policy, Selection
from rollout.model.progress import Outcome, Phase
from rollout.model.quantity import Duration
from rollout.model.selectors import parse_selector
from rollout.model.timestamps import whole_second
from rollout.planning.eligibility.candidates import is_excluded_by_name
from rollout.planning.eligibility.pools import pools_of
from rollout.ports import ClusterApi
from rollout.server.protocol import AnswerKind, Denied

_VERSION_IN_OS_IMAGE = re.compile(r"\d+(?:\.\d+)+[-+.\w]*")
_FOREVER = 10.0 * 365 * 24 * 3600
_RETRY_SECONDS = 2.0
_PAUSE_SECONDS = 1.0
_UNKNOWN_CLUSTER = ClusterIdentity(uid="", server="", version="")
CREATED_AGAIN = "its Node was deleted and created again: its host has to request its reboot again"
AWAITED_IN_REBOOT = frozenset({Awaited.BOOT, Awaited.LATE_REBOOT, Awaited.READY, Awaited.REPORT})
PHASES_WITHOUT_GRANT = ("", Phase.CORDONED, Phase.DRAINING, Phase.DRAINED)


def version_of(node: Node) -> str:
    match = _VERSION_IN_OS_IMAGE.search(node.os_image)
    return match[0] if match else node.os_image


def select_nodes(nodes: Iterable[Node], selection: Selection) -> list[Node]:
    selector = parse_selector(selection.selector)

    def is_selected(node: Node) -> bool:
        if selection.nodes and node.name not in selection.nodes:
            return False
        return selector.matches(node.labels) and not is_excluded_by_name(node.name, selection)

    return [node for node in nodes if is_selected(node)]


def read_slot_node(api: ClusterApi, slot: Slot) -> Node | None:
    """A new Node may have the name of a deleted one."""
    try:
        node = read_node(api, slot.node)
    except ApiNotFoundError:
        return None
    return node if node.uid == slot.node_uid else None


def node_of_host(host_id: str, nodes: Iterable[Node]) -> Node:
    nodes = tuple(nodes)
    matching = []
    # Invalid machine IDs give an empty ID.
    if host_id:
        matching = [node for node in nodes if zincati_id(node.machine_id) == host_id]
    if not matching:
        raise _unknown_id_denial(nodes)
    if len(matching) > 1:
        names = ", ".join(sorted(node.name for node in matching))
        raise Denied(
            AnswerKind.DOUBLED_ID, f"several Nodes have this machine ID: {names}. {MACHINE_ID_FIX}"
        )
    return matching[0]


def _unknown_id_denial(nodes: Iterable[Node]) -> Denied:
    message = "no Node has the machine ID from which this ID is derived"
    ambiguities = tuple(ambiguous_machine_ids(nodes))
    for ambiguity in ambiguities:
        message += f"; {ambiguity.cause}"
    if ambiguities:
        message += f". {MACHINE_ID_FIX}"
    return Denied(AnswerKind.UNKNOWN_ID, message)


class NodesUnknownError(ApiUnavailableError):
    """The nodes have not been read yet."""


class WatchedNodes:
    def __init__(self, cluster: PatientApi) -> None:
        self._cluster = cluster
        self._view: LiveView[Node] | None = None

    def follow(self, stop: GracefulStop) -> None:
        with ExitStack() as stack:
            while self._view is None and not stop.is_due:
                view = watch_nodes(self._cluster, self._cluster.deadline(_FOREVER))
                try:
                    self._view = stack.enter_context(view)
                except ApiError as error:
                    self._cluster.notice(error)
                    self._cluster.clock.wait(stop, _RETRY_SECONDS)
            self._cluster.clock.wait(stop, _FOREVER)

    def require_all(self) -> Mapping[str, Node]:
        if self._view is None:
            raise NodesUnknownError("the nodes have not been read yet")
        return {node.name: node for node in self._view.items()}

    def of_host(self, host_id: str) -> Node:
        """Raise `Denied` unless exactly one node has this ID."""
        return node_of_host(host_id, self.require_all().values())


def await_reregistration(
    cluster: PatientApi,
    check_may_act: Guard,
    slot: Slot,
    timeout: Duration,
    *,
    is_canceled: Callable[[], bool],
) -> Node:
    """Return the Node that the slot's machine registers after another boot.

    Raises `NodeRemovedError` on timeout, `NodeFailure` if the machine has not rebooted.
    """
    deadline = cluster.deadline(absence_seconds(timeout))
    while True:
        check_may_act()
        node = cluster.ask(lambda api: _read_registered_node(api, slot))
        if node is not None:
            if node.boot_id == slot.boot_id:
                raise NodeFailure(Outcome.SKIPPED, CREATED_AGAIN)
            has_kubelet_reported = bool(node.boot_id)
            if has_kubelet_reported:
                return node
        if deadline.expired or is_canceled():
            raise NodeRemovedError(DID_NOT_COME_BACK)
        deadline.pause(_PAUSE_SECONDS)


def _read_registered_node(api: ClusterApi, slot: Slot) -> Node | None:
    try:
        node = read_node(api, slot.node)
    except ApiNotFoundError:
        return None
    return node if zincati_id(node.machine_id) == slot.id else None


def facts_of(node: Node) -> HostFacts:
    return HostFacts(
        host=Host(node.name, address=""),
        # The host has requested its reboot.
        update=UpdateStatus(UpdateOperation.NEED_REBOOT, new_version=announced_version(node)),
        os_id="",
        running_version=version_of(node),
        group="",
        boot_id=node.boot_id,
        machine_id=node.machine_id,
        locksmithd_active=False,
        may_reboot=True,
    )


def plan_node(node: Node, slot: Slot, policy: Policy) -> PlannedNode:
    """Return the node as it was before the slot's run."""
    was_cordoned = node.unschedulable
    machine_id = node.machine_id
    if node.annotations.get(marks.RUN) == slot.run_id:
        was_cordoned = node.annotations.get(marks.CORDONED_BY_US) != "true"
        # A reinstalled host is another machine.
        machine_id = node.annotations.get(marks.MACHINE_ID) or node.machine_id
    return PlannedNode(
        name=node.name,
        boot_id=slot.boot_id,
        node_uid=slot.node_uid,
        running_version=slot.version,
        staged_version="",
        evict=0,
        leave=0,
        was_cordoned=was_cordoned,
        machine_id=machine_id,
        pool=pools_of(policy).pool_of(node.labels),
    )


def plan_of(
    node: Node,
    slot: Slot,
    *,
    selection: Selection,
    policy: Policy,
    now: datetime,
    cluster: ClusterIdentity = _UNKNOWN_CLUSTER,
) -> RolloutPlan:
    reason = f"its host requested a slot of the group {slot.group}"
    wave = Wave(index=1, nodes=(plan_node(node, slot, policy),), because=reason)
    return RolloutPlan(
        format_version=FORMAT_VERSION,
        plan_id=slot.run_id,
        created_at=whole_second(now),
        cluster=cluster,
        selection=selection,
        policy=policy,
        waves=(wave,),
        excluded=(),
        blockers=(),
        warnings=(),
        summary=PlanSummary(nodes=1, waves=1, waves_lower_bound=1),
    )
