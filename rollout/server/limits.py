"""Whether one more node may be away: pure, decided on the slots as they are written, and on a fresh list of nodes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rollout.execution.gates.gates import Gates
from rollout.model.cluster import Node
from rollout.model.fleetlock import GroupRules, Slot, Slots
from rollout.model.plan import PlannedNode
from rollout.model.policy import Policy, Selection
from rollout.model.text import shortened
from rollout.planning.away import Room, is_away
from rollout.planning.eligibility import is_control_plane
from rollout.planning.pools import own_limits, pools_of
from rollout.planning.selector import parse_selector
from rollout.server.answers import Denied, Kind
from rollout.server.nodes import selected
from rollout.server.settings import ServerSettings

_NAMED = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that hold for a cluster of these nodes, by name."""

    nodes: Mapping[str, Node]
    selection: Selection
    policy: Policy

    def check_group(self, slots: Slots, group: str, rules: GroupRules) -> None:
        """`Denied` where all of a group's slots are held."""
        most = rules.slots.of(self._number(rules.selector) if rules.slots.is_share else 0)
        if slots.taken(group) >= most:
            holders = [slot.node for slot in slots.held if slot.group == group]
            held = f"all {most} slots of the group {group} are held, by {shortened(holders, _NAMED)}"
            raise Denied(Kind.SEMAPHORE_FULL, held)

    def _number(self, selector: str) -> int:
        """How many nodes a group has. Nearly every ask is answered by its slots alone: nothing else is counted then."""
        wanted = parse_selector(selector)
        return sum(1 for node in selected(self.nodes.values(), self.selection) if wanted.matches(node.labels))

    def check_away(self, slots: Slots, node: Node) -> None:
        """`Denied` where the node may not be away beside those that are."""
        away = {name for name, other in self.nodes.items() if is_away(other)} | slots.nodes
        if why := self.room.why_full(node.name, away):
            raise Denied(Kind.MAX_UNAVAILABLE, why)
        for other in sorted(slots.nodes & self.nodes.keys()):
            self._check_beside(self.nodes[other], node)

    @property
    def room(self) -> Room:
        """How many of the nodes may be away."""
        meant, pools = selected(self.nodes.values(), self.selection), pools_of(self.policy)
        members = {name: pools.of(node.labels) for name, node in self.nodes.items()} if self.policy.pools else {}
        limits = own_limits(self.policy, pools.sizes(meant)) if members else {}
        return Room(self.policy.max_unavailable.of(len(meant)), limits, members)

    def _check_beside(self, other: Node, node: Node) -> None:
        rules = pools_of(self.policy).rules_for(node.labels)
        if is_control_plane(node, rules) and is_control_plane(other, rules):
            raise Denied(Kind.NOT_NOW, f"control-plane nodes reboot one at a time, and {other.name} is under way")
        label = rules.spread_by
        if label and node.labels.get(label, "") != other.labels.get(label, ""):
            there = other.labels.get(label, "none")
            raise Denied(Kind.NOT_NOW, f"--spread-by {label}: {other.name} of {there} is under way")


def taken(slots: Slots, slot: Slot, rules: GroupRules, limits: Limits) -> Slots:
    """The slots with this one taken; the same where its node holds one already. `Denied` where there is no room."""
    if slots.of_node(slot.node) is not None:
        return slots
    limits.check_group(slots, slot.group, rules)
    limits.check_away(slots, limits.nodes[slot.node])
    return slots.with_slot(slot)


@dataclass(frozen=True, slots=True)
class TurnAdmission:
    """What admits a slot's node, asked once more in the step that cordons it."""

    gates: Gates
    settings: ServerSettings

    def refusal(self, planned: PlannedNode) -> str:
        """Why it may not be begun now."""
        return self.gates.refusal(planned)

    def room(self, nodes: Iterable[Node]) -> Room:
        """How many of these may be away."""
        return Limits({node.name: node for node in nodes}, self.settings.selection, self.settings.policy).room
