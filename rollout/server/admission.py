"""Whether a host that holds no slot may have one: whatever would keep its node out of a rollout now is a denial.

What costs nothing is asked first, and the cluster last; the limits are judged again where the slot is written.
"""

from collections.abc import Mapping
from functools import partial

from rollout.execution.base.patience import PatientApi
from rollout.execution.base.reporting import Observers, Reporter
from rollout.execution.base.stop import StopRequest
from rollout.execution.gates.policy_gates import PolicyGates, Surroundings, closed
from rollout.execution.record.record import StandingRecord, read_record
from rollout.execution.record.unfinished import assess
from rollout.gather.cluster.memory import read_memory
from rollout.gather.cluster.rivals import read_coordinators
from rollout.gather.cluster.snapshot import read_node, read_nodes
from rollout.model import marks
from rollout.model.cluster import ClusterIdentity, ClusterSnapshot, Node
from rollout.model.fleetlock import GroupRules, Slot, Slots, is_fleetlock_run
from rollout.model.memory import Memory
from rollout.model.plan import ExclusionReason
from rollout.model.rivals import Coordinator
from rollout.model.text import timestamp
from rollout.planning.eligibility import Candidate, exclusion
from rollout.planning.memory import Rules, why_maybe_held
from rollout.planning.pools import pools_of
from rollout.planning.rivals import rivals
from rollout.planning.windows import Window
from rollout.ports import ClusterApi
from rollout.server.answers import Denied, Kind
from rollout.server.forecasts import Forecasts, Kept
from rollout.server.leadership import Leadership
from rollout.server.limits import Limits, taken
from rollout.server.machines import Machines, by_id, the_one
from rollout.server.nodes import facts_of, new_run, plan_of, planned, selected, version_of
from rollout.server.requests import Ask
from rollout.server.settings import ServerSettings, World
from rollout.server.slots import SlotBook

# Seconds for which an answer of the cluster is good enough to say no by.
_FRESH = 2.0
# What may be asked of the cluster while a host waits for its answer.
_PATIENCE = 10.0
# Deployments and DaemonSets change rarely, and are many.
_FRESH_COORDINATORS = 60.0
_NOWHERE = ClusterIdentity("", "", "")
_KINDS = {
    ExclusionReason.PAUSED: Kind.PAUSED,
    ExclusionReason.RIVAL: Kind.RIVAL,
    ExclusionReason.FAILED_RECENTLY: Kind.FAILED_RECENTLY,
    ExclusionReason.VERSION_HELD: Kind.VERSION_HELD,
}


class Admission:
    """Decides on hosts that hold no slot. For many threads at once."""

    def __init__(
        self, settings: ServerSettings, world: World, machines: Machines, book: SlotBook, leadership: Leadership
    ) -> None:
        self._settings = settings
        self._world = world
        self._machines = machines
        self._book = book
        self._leadership = leadership
        self._api: ClusterApi = world.api.within(_PATIENCE)
        self._windows = [Window.parse(text) for text in settings.policy.gates.windows.windows]
        clock, namespace = world.clock, settings.namespace
        self._memory: Kept[Memory] = Kept(lambda: read_memory(self._api, namespace), _FRESH, clock)
        self._record: Kept[tuple[StandingRecord | None]] = Kept(
            lambda: (read_record(self._api, namespace),), _FRESH, clock
        )
        self._coordinators: Kept[tuple[Coordinator, ...]] = Kept(
            lambda: read_coordinators(self._api)[0], _FRESH_COORDINATORS, clock
        )
        self._forecasts = Forecasts(self._api, settings.policy, clock)

    def take(self, ask: Ask, name: str, rules: GroupRules) -> Slots:
        """Take a slot for this node; `Denied` where it may not have one, `ApiError` where that cannot be told."""
        self._check_cheaply(ask, name, rules)
        # what is good enough for a no is none for a yes: a pause, or a failure, may have come since
        self._memory.forget()
        self._check_memory()
        node = read_node(self._api, name)
        candidate = self._eligible(node)
        self._check_rivals()
        slot = self._slot(ask, node)
        self._check_gates(node, slot)
        self._forecasts.check(candidate, facts_of(node))
        nodes = {fresh.name: fresh for fresh in read_nodes(self._api)}
        if the_one(by_id(nodes.values()).get(ask.id, ())) != name:
            raise Denied(Kind.UNKNOWN_ID, f"this id is not the one of {name} any more")
        limits = self._limits(nodes)
        return self._book.change(partial(taken, slot=slot, rules=rules, limits=limits))

    def _check_cheaply(self, ask: Ask, name: str, rules: GroupRules) -> None:
        """By what is known already, but for a look at the slots and the Lease now and then."""
        slots, nodes = self._book.seen(_FRESH / 2), self._machines.nodes
        limits = self._limits(nodes)
        limits.check_group(slots, ask.group, rules)
        if name not in {node.name for node in selected((nodes[name],), self._settings.selection)}:
            raise Denied(Kind.NODE_EXCLUDED, f"{name} is left out by --selector, --node or --exclude")
        if why := closed(self._windows, self._world.clock.now()):
            raise Denied(Kind.OUTSIDE_WINDOW, why)
        if other := self._leadership.other:
            raise Denied(Kind.LOCKED_BY_ROLLOUT, f"another rollout is running: {other}")
        self._check_unfinished(nodes)
        limits.check_away(slots, nodes[name])
        self._check_memory()

    def _limits(self, nodes: Mapping[str, Node]) -> Limits:
        return Limits(nodes, self._settings.selection, self._settings.policy)

    @property
    def _most_failures(self) -> int:
        meant = selected(self._machines.nodes.values(), self._settings.selection)
        return max(1, self._settings.policy.max_failures.of(len(meant)))

    def _check_memory(self) -> None:
        memory, now = self._memory.now(), self._api.server_time()
        if memory.pause is not None and not memory.pause.is_over(now):
            raise Denied(Kind.PAUSED, f"all nodes are {memory.pause}")
        if memory.problem:
            raise Denied(Kind.API_ERROR, memory.problem)

    def _eligible(self, node: Node) -> Candidate:
        """By the rules of a plan, for a host that has just said that it waits for a reboot; else `Denied`."""
        policy, facts, memory = self._settings.policy, facts_of(node), self._memory.now()
        rules = Rules(self._api.server_time(), self._most_failures, policy.include_held, unattended=True)
        pool, selection = pools_of(policy).rules_for(node.labels), self._settings.selection
        candidate = Candidate(node, facts, pool, selection, memory=memory, remembering=rules)
        if objection := exclusion(candidate):
            raise Denied(_KINDS.get(objection.reason, Kind.NODE_EXCLUDED), f"{node.name}: {objection.message}")
        if not facts.update.new_version and (why := why_maybe_held(memory, facts.running_version, rules)):
            raise Denied(Kind.VERSION_HELD, f"{node.name}: {why}")
        return candidate

    def _check_unfinished(self, nodes: Mapping[str, Node]) -> None:
        """No rollout of a person or a pass is left unfinished."""
        unfinished = assess(self._record.now()[0], (node for node in nodes.values() if not _is_ours(node)))
        if unfinished is not None and unfinished.blocks:
            what = f"the rollout {unfinished.run or 'of unknown id'} is running or interrupted"
            raise Denied(Kind.LOCKED_BY_ROLLOUT, f"{what}: rollout resume, or rollout abort")

    def _check_rivals(self) -> None:
        """No other reboot coordinator is at work."""
        nodes = tuple(self._machines.nodes.values())
        snapshot = ClusterSnapshot(_NOWHERE, nodes, (), (), (), (), coordinators=self._coordinators.now())
        if at_work := rivals(snapshot, self._settings.policy.gates.ignored_rivals):
            raise Denied(Kind.RIVAL, f"{at_work[0].object} {at_work[0].message}")

    def _slot(self, ask: Ask, node: Node) -> Slot:
        at = self._api.server_time() or self._world.clock.now()
        return Slot(ask.group, node.name, node.uid, ask.id, new_run(), timestamp(at), node.boot_id, version_of(node))

    def _check_gates(self, node: Node, slot: Slot) -> None:
        """What may hold an untouched node: the time left in a window, pods that block it, alerts."""
        policy, clock = self._settings.policy, self._world.clock
        entry = planned(node, slot, policy)
        plan = plan_of(entry, slot, _NOWHERE, self._settings.selection, policy, clock.now())
        cluster = PatientApi(self._api, clock, seconds=_PATIENCE)
        around = Surroundings(plan, cluster, Reporter(Observers(()), clock), StopRequest())
        if why := PolicyGates(around, self._world.gates).hold(entry).why:
            raise Denied(Kind.HELD_BY_GATE, f"{node.name}: {why}")


def _is_ours(node: Node) -> bool:
    return is_fleetlock_run(node.annotations.get(marks.RUN, ""))
