"""The answer to a host that holds a slot and asks for its reboot: yes only by a last look at its node.

The order is what makes it safe beside a server that gives nodes back. The grant is written on the Node first; then the
node is looked at, then the slot and the Lease. Whoever gives a node back has closed the slot before, and reads the
Node's phase after that: one of the two sees the other.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rollout.errors import DrainError
from rollout.execution.base.patience import PatientApi
from rollout.execution.base.reporting import Observers, Reporter
from rollout.execution.drain.task import DrainTask
from rollout.execution.node.context import NodeTask
from rollout.execution.node.last_look import look_again
from rollout.execution.node.marking import mark_granted
from rollout.gather.cluster.snapshot import read_node, read_nodes
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.fleetlock import Slot, SlotState
from rollout.model.node_marks import last_result
from rollout.model.progress import Phase
from rollout.planning.pools import pools_of
from rollout.server.answers import Answer, Denied, Kind
from rollout.server.leadership import Leadership
from rollout.server.machines import by_id, the_one
from rollout.server.nodes import planned
from rollout.server.settings import ServerSettings, World
from rollout.server.slots import SlotBook

_PATIENCE = 10.0
_GRANTABLE = (Phase.DRAINED, Phase.REBOOTING)


@dataclass(frozen=True, slots=True)
class Grants:
    """Answers the holders of slots."""

    settings: ServerSettings
    world: World
    book: SlotBook
    leadership: Leadership

    def answer(self, slot: Slot, detail: str) -> Answer:
        """A grant, or `Denied`; `detail` is what is known of the drain. `ApiError`, `FencedError`: never a grant."""
        api = self.world.api.within(_PATIENCE)
        node = read_node(api, slot.node)
        check_slot(slot, node)
        phase = node.annotations.get(marks.PHASE, "")
        if node.annotations.get(marks.RUN) != slot.run or phase not in _GRANTABLE:
            raise Denied(Kind.WAITING_FOR_DRAIN, f"{slot.node} is {phase or 'waiting for its drain'}{detail}")
        if the_one(by_id(read_nodes(api)).get(slot.id, ())) != slot.node:
            raise Denied(Kind.WAITING_FOR_PROOF, f"another Node than {slot.node} has its machine id by now")
        self._look(slot, node, PatientApi(api, self.world.clock, seconds=_PATIENCE))
        return Answer(Kind.GRANTED, f"{slot.node} is cordoned and drained", self._held_until(slot))

    def _held_until(self, slot: Slot) -> float:
        """Until when both are known to be held: read at once, so that one read in time for the Lease is enough."""
        until = self.leadership.safe_until
        with ThreadPoolExecutor(1, thread_name_prefix="lease") as beside:
            lease = beside.submit(self.leadership.check)
            self._check_still_held(slot)
            lease.result()
        return until

    def _look(self, slot: Slot, node: Node, cluster: PatientApi) -> None:
        """Write the grant, and look at the node; what is seen to be wrong now is mended by whoever drains."""
        policy = self.settings.policy
        report, entry = Reporter(Observers(()), self.world.clock), planned(node, slot, policy)
        rules = pools_of(policy).rules(entry.pool).drain
        try:
            mark_granted(NodeTask(entry, slot.run, cluster, self.leadership, report))
            task = DrainTask(slot.node, slot.node_uid, slot.run, rules, cluster, self.leadership, report)
            look_again(task, cluster.deadline())
        except DrainError as error:
            raise Denied(Kind.WAITING_FOR_DRAIN, error.message) from error

    def _check_still_held(self, slot: Slot) -> None:
        held = self.book.read().of_run(slot.run)
        if held is None or _is_ending(held) or held.state is not slot.state:
            raise Denied(Kind.WAITING_FOR_DRAIN, f"the slot of {slot.node} is about to be freed")


def check_slot(slot: Slot, node: Node) -> None:
    """`Denied` where the slot is none by which this node could be granted a reboot now."""
    if node.uid != slot.node_uid:
        raise Denied(Kind.WAITING_FOR_PROOF, f"{slot.node} was deleted and created again; its slot is about to be free")
    if is_given_back(slot, node):
        raise Denied(Kind.WAITING_FOR_SETTLING, f"{slot.node} is back, and the cluster settles from its last reboot")
    if node.boot_id != slot.boot_id:
        raise Denied(Kind.WAITING_FOR_PROOF, f"{slot.node} has rebooted, and is not proven to be back yet")
    if slot.state is not SlotState.HELD:
        raise Denied(Kind.NODE_FAILED, f"{slot.node} ended badly: {last_result(node).get('outcome', 'unknown')}")
    if _is_ending(slot):
        raise Denied(Kind.WAITING_FOR_DRAIN, f"the slot of {slot.node} is about to be freed")


def _is_ending(slot: Slot) -> bool:
    """Whether a node in the boot from before is about to be given back."""
    return slot.closing or slot.released or slot.returned


def is_given_back(slot: Slot, node: Node) -> bool:
    """Whether this slot's reboot is over and done with on the Node itself."""
    return marks.RUN not in node.annotations and last_result(node).get("run") == slot.run
