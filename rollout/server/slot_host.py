from msgspec import Struct
from msgspec.structs import replace

from rollout.errors import ApiError
from rollout.model.cluster import Node
from rollout.model.fleetlock import Slot
from rollout.model.host import Host
from rollout.model.node_marks import announced_version
from rollout.model.plan import PlannedNode
from rollout.ports import ClusterApi
from rollout.server.nodes import read_slot_node, version_of
from rollout.server.state import SlotStore


class SlotHost(Struct, frozen=True):
    """Answers from the Node, because the host cannot be asked."""

    slot: Slot
    planned: PlannedNode
    api: ClusterApi
    slots: SlotStore

    @property
    def endpoint(self) -> Host:
        return Host(self.slot.node, address="")

    @property
    def error(self) -> None:
        """The host cannot be asked."""

    def boot_now(self) -> None:
        """The host cannot be asked."""

    def node_to_remember(self, _planned: PlannedNode) -> PlannedNode | None:
        """Return the node with the version it booted, or would boot; None if deleted."""
        planned = self.planned
        try:
            node = read_slot_node(self.api, self.slots.cached_slot(self.slot))
        except ApiError:
            return planned
        if node is None:
            return None
        if not has_same_machine_rebooted(planned, node):
            return replace(planned, staged_version=announced_version(node))
        booted_version = version_of(node)
        if booted_version == self.slot.version:
            return planned
        return replace(planned, staged_version=booted_version)


def has_rebooted(planned: PlannedNode, node: Node) -> bool:
    return bool(node.boot_id) and node.boot_id != planned.boot_id


def has_same_machine_rebooted(planned: PlannedNode, node: Node) -> bool:
    return has_rebooted(planned, node) and is_same_machine(planned, node)


def is_same_machine(planned: PlannedNode, node: Node) -> bool:
    return node.machine_id == planned.machine_id
