"""Finds the node of a host that asks by the ID that Zincati derives from its machine ID."""

import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack

from rollout.errors import ApiError, ApiNotFoundError
from rollout.execution.base.deadline import PatientApi, StopRequest
from rollout.execution.base.live_view import LiveView, watch_nodes
from rollout.gather.cluster.snapshot import read_node
from rollout.gather.hosts.identity import MACHINE_ID_FIX, ambiguous_machine_ids
from rollout.model.cluster import Node
from rollout.model.fleetlock import Slot, zincati_id
from rollout.model.policy import Selection
from rollout.model.progress import Phase
from rollout.model.selectors import parse_selector
from rollout.planning.eligibility.candidates import excluded_by_name
from rollout.ports import ClusterApi
from rollout.server.protocol import AnswerKind, Denied

_VERSION = re.compile(r"\d+(?:\.\d+)+[-+.\w]*")
_FOREVER = 10.0 * 365 * 24 * 3600
_RETRY_SECONDS = 2.0
# The phases in which a host has not been granted its reboot.
UNGRANTED = ("", Phase.CORDONED, Phase.DRAINING, Phase.DRAINED)


def version_of(node: Node) -> str:
    """Return the version in the name of the node's OS image, or the whole name without one."""
    match = _VERSION.search(node.os_image)
    return match[0] if match else node.os_image


def select_nodes(nodes: Iterable[Node], selection: Selection) -> list[Node]:
    selector = parse_selector(selection.selector)

    def is_selected(node: Node) -> bool:
        if selection.nodes and node.name not in selection.nodes:
            return False
        return selector.matches(node.labels) and not excluded_by_name(node.name, selection)

    return [node for node in nodes if is_selected(node)]


def node_of(api: ClusterApi, slot: Slot) -> Node | None:
    """Return the slot's Node; None if it was deleted, even if another has its name."""
    try:
        node = read_node(api, slot.node)
    except ApiNotFoundError:
        return None
    return node if node.uid == slot.node_uid else None


def node_of_host(host_id: str, nodes: Iterable[Node]) -> Node:
    """Return the node whose host has this ID; `Denied` if not exactly one has it."""
    nodes = tuple(nodes)
    matching = []
    if host_id:
        matching = [node for node in nodes if zincati_id(node.machine_id) == host_id]
    if not matching:
        message = "no Node has the machine ID that this ID is made of"
        ambiguities = tuple(ambiguous_machine_ids(nodes))
        for ambiguity in ambiguities:
            message += f"; {ambiguity.cause}"
        if ambiguities:
            message += f". {MACHINE_ID_FIX}"
        raise Denied(AnswerKind.UNKNOWN_ID, message)
    if len(matching) > 1:
        names = ", ".join(sorted(node.name for node in matching))
        raise Denied(
            AnswerKind.DOUBLED_ID, f"several Nodes have this machine ID: {names}. {MACHINE_ID_FIX}"
        )
    return matching[0]


class WatchedNodes:
    """All nodes, kept current by a watch, which `follow` runs. None are known before its start."""

    def __init__(self, cluster: PatientApi) -> None:
        self._cluster = cluster
        self._view: LiveView[Node] | None = None

    def follow(self, stop: StopRequest) -> None:
        with ExitStack() as stack:
            while self._view is None and not stop.is_due:
                view = watch_nodes(self._cluster, self._cluster.deadline(_FOREVER))
                try:
                    self._view = stack.enter_context(view)
                except ApiError as error:
                    self._cluster.notice(error)
                    self._cluster.clock.wait(stop, _RETRY_SECONDS)
            self._cluster.clock.wait(stop, _FOREVER)

    @property
    def by_name(self) -> Mapping[str, Node]:
        """All nodes. Raises `Denied` before they are known."""
        if self._view is None:
            raise Denied(AnswerKind.API_UNAVAILABLE, "the nodes have not been read yet")
        return {node.name: node for node in self._view.items()}

    def of_host(self, host_id: str) -> Node:
        return node_of_host(host_id, self.by_name.values())
