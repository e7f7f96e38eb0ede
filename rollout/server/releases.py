"""The answer to a host that reports steady state: its slot is free once its reboot is proven, and not before.

What is proven is seen by the server that holds the Lease. It is told here that the host has reported; the answer waits
a little for what comes of it.
"""

import time
from dataclasses import dataclass

from rollout.errors import ApiNotFoundError
from rollout.gather.cluster.snapshot import read_node
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.fleetlock import Slot, Slots, SlotState, is_fleetlock_run
from rollout.model.node_marks import misunderstanding
from rollout.model.progress import Phase
from rollout.model.text import timestamp
from rollout.server.answers import Answer, Denied, Kind
from rollout.server.grants import is_given_back
from rollout.server.machines import Machines
from rollout.server.nodes import version_of
from rollout.server.requests import Ask
from rollout.server.settings import World
from rollout.server.slots import SlotBook

_PATIENCE = 10.0
_WAIT = 10.0
_PAUSE = 0.5
_UNGRANTED = ("", Phase.CORDONED, Phase.DRAINING, Phase.DRAINED)
NOT_HELD = Answer(Kind.NOT_HELD, "no slot is held by this host")


@dataclass(frozen=True, slots=True)
class Releases:
    """Answers hosts that are done. `wait` is how many seconds an answer may wait for the proof."""

    world: World
    book: SlotBook
    machines: Machines
    wait: float = _WAIT

    def answer(self, ask: Ask) -> Answer:
        """That the slot is free, or was never held; `Denied` while the node is not proven to be back."""
        name = self._name(ask)
        slot = self._held(ask, name) or self._left_over(ask, name)
        if slot is None:
            return NOT_HELD
        if slot.id != ask.id:
            way_out = f"rollout fleetlock release {slot.node}"
            raise Denied(Kind.WAITING_FOR_PROOF, f"{slot.node} was another machine when it took its slot: {way_out}")
        node = self._node(slot)
        if node is not None and not is_given_back(slot, node):
            self._note(slot, node)
        return self._awaited(slot)

    def _held(self, ask: Ask, name: str) -> Slot | None:
        """Its slot. That a host which is known holds none is a yes, and told by none but a fresh look."""
        slot = _slot_of(self.book.seen(1.0), ask, name)
        return _slot_of(self.book.read(), ask, name) if slot is None and name else slot

    def _name(self, ask: Ask) -> str:
        """Its Node, empty where that cannot be any; `Denied` before the nodes are known."""
        try:
            return self.machines.name_of(ask.id)
        except Denied as denied:
            if denied.answer.kind in (Kind.UNKNOWN_ID, Kind.DOUBLED_ID):
                return ""
            raise

    def _left_over(self, ask: Ask, name: str) -> Slot | None:
        """A slot for a node that carries the marks of one that is gone: by it the node is proven and given back.

        It takes nobody's place, and nothing is ever granted by it.
        """
        if not name or not is_fleetlock_run(self.machines.nodes[name].annotations.get(marks.RUN, "")):
            return None
        node = read_node(self.world.api.within(_PATIENCE), name)
        run = node.annotations.get(marks.RUN, "")
        if not is_fleetlock_run(run) or misunderstanding(node):
            return None
        at = timestamp(self.world.api.server_time() or self.world.clock.now())
        boot_id = node.annotations[marks.BOOT_ID_BEFORE]
        slot = Slot(ask.group, name, node.uid, ask.id, run, at, boot_id, "", SlotState.ABSENT, released=True)
        return self.book.change(lambda slots: slots.with_slot(slot)).of_node(name)

    def _node(self, slot: Slot) -> Node | None:
        """The Node, or None where it is gone: then the slot is about to be free."""
        try:
            node = read_node(self.world.api.within(_PATIENCE), slot.node)
        except ApiNotFoundError:
            return None
        return node if node.uid == slot.node_uid else None

    def _note(self, slot: Slot, node: Node) -> None:
        """Have it seen to: a host in the boot from before that was granted nothing has given its wish up."""
        phase = node.annotations.get(marks.PHASE, "") if node.annotations.get(marks.RUN) == slot.run else ""
        if slot.released:
            return
        if node.boot_id == slot.boot_id and phase in _UNGRANTED:
            self.book.change(lambda slots: slots.changed(slot.run, released=True))
        elif slot.state is SlotState.ABSENT:
            # its place may be another's by now: it is proven and given back without one
            self.book.change(lambda slots: slots.changed(slot.run, returned=True, released=True))
        else:
            self.book.change(lambda slots: slots.changed(slot.run, returned=True, state=SlotState.HELD))

    def _awaited(self, slot: Slot) -> Answer:
        end = self.world.clock.monotonic() + self.wait
        while self.world.clock.monotonic() < end:
            node = self.machines.nodes.get(slot.node)
            if self.book.seen(_PAUSE).of_run(slot.run) is None or (node is not None and is_given_back(slot, node)):
                return Answer(Kind.RELEASED, f"{slot.node} is in service{_unmoved(slot, node)}")
            time.sleep(_PAUSE)
        raise Denied(Kind.WAITING_FOR_PROOF, f"{slot.node}: {_missing(slot, self._node(slot))}")


def _slot_of(slots: Slots, ask: Ask, name: str) -> Slot | None:
    """The slot that the host has taken; of several, as where its disk went to another machine, that of its Node now."""
    slot = slots.of_node(name) if name else None
    return slot if slot is not None and slot.id == ask.id else slots.of_id(ask.id)


def _unmoved(slot: Slot, node: Node | None) -> str:
    """That a reboot has brought no other version, as far as the host's kubelet tells."""
    if node is None or node.boot_id == slot.boot_id or version_of(node) != slot.version:
        return ""
    return f", and runs {slot.version} as before: no update has taken, or none was staged"


def _missing(slot: Slot, node: Node | None) -> str:
    if node is None:
        return "its Node is gone, and its slot is about to be free"
    if node.boot_id == slot.boot_id:
        return "its kubelet still reports the boot from before: without a reboot it is given back in a minute"
    return "its checks have not passed yet" if node.is_ready else f"it is not Ready {node.ready_message}".rstrip()
