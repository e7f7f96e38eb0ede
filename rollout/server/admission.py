"""Whether a host that holds no slot may have one: whatever would keep its node out of a rollout now is a denial.

What costs nothing is asked first, and the cluster last; the limits are judged again where the slot
is written, on the slots as they are then and on a fresh list of nodes. A host whose drain could
never end takes no slot: the forecast is the plan's own, and what a plan only warns of is waited out
by the drain.
"""

import secrets
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from rollout.errors import BlockedError
from rollout.execution.base.deadline import PatientApi, StopRequest
from rollout.execution.base.kept import CachedValue
from rollout.execution.gates import PolicyGates
from rollout.execution.record.memory import require_memory
from rollout.execution.record.record import read_record
from rollout.execution.record.unfinished import assess
from rollout.gather.cluster.documents import read_memory
from rollout.gather.cluster.rivals import read_coordinators
from rollout.gather.cluster.snapshot import read_node, read_nodes, read_snapshot
from rollout.model import marks
from rollout.model.cluster import ClusterSnapshot, Node
from rollout.model.fleetlock import RUN_PREFIX, GroupRules, Slot, Slots, is_fleetlock_run
from rollout.model.plan import ExclusionReason
from rollout.model.policy import Policy, Selection
from rollout.model.selectors import parse_selector
from rollout.model.text import shortened
from rollout.model.timestamps import timestamp
from rollout.planning.drain.forecast import DrainForecaster
from rollout.planning.eligibility.away import AwayLimit, is_away
from rollout.planning.eligibility.candidates import Candidate, exclusion, is_control_plane
from rollout.planning.eligibility.judgement import EligibilityInputs, why_maybe_held
from rollout.planning.eligibility.memory import all_paused
from rollout.planning.eligibility.pools import pools_of
from rollout.planning.eligibility.rivals import rivals
from rollout.planning.eligibility.windows import Schedule
from rollout.server.nodes import NOWHERE, facts_of, name_of, plan_of, select_nodes, version_of
from rollout.server.protocol import AnswerKind, Ask, Denied
from rollout.server.state import PATIENCE, ServerContext
from rollout.wording import text

_NAMED = 3
_FRESH_FORECAST = 2.0
# Of a core, what reading the cluster may take: 30,000 pods take 4 s.
_SHARE = 0.1

# Seconds for which an answer of the cluster is good enough to say no by.
_FRESH = 2.0
# Deployments and DaemonSets change rarely, and are many.
_FRESH_COORDINATORS = 60.0
_KINDS = {
    ExclusionReason.PAUSED: AnswerKind.PAUSED,
    ExclusionReason.RIVAL: AnswerKind.RIVAL,
    ExclusionReason.FAILED_RECENTLY: AnswerKind.FAILED_RECENTLY,
    ExclusionReason.VERSION_HELD: AnswerKind.VERSION_HELD,
}


def away_limit(nodes: Collection[Node], selection: Selection, policy: Policy) -> AwayLimit:
    """How many of these, which are all, may be away."""
    meant = pools_of(policy).members(select_nodes(nodes, selection))
    return AwayLimit.of(policy, len(meant), meant, nodes)


@dataclass(frozen=True, slots=True)
class SlotLimits:
    """The limits that hold for a cluster of these nodes, by name."""

    nodes: Mapping[str, Node]
    selection: Selection
    policy: Policy

    def check_group(self, slots: Slots, group: str, rules: GroupRules) -> None:
        """`Denied` where all of a group's slots are held."""
        number = 0
        if rules.slots.is_share:
            wanted = parse_selector(rules.selector)
            number = sum(
                wanted.matches(node.labels)
                for node in select_nodes(self.nodes.values(), self.selection)
            )
        most = rules.slots.of(number)
        if slots.taken(group) >= most:
            holders = [slot.node for slot in slots.held if slot.group == group]
            held = (
                f"all {most} slots of the group {group} are held, by {shortened(holders, _NAMED)}"
            )
            raise Denied(AnswerKind.SEMAPHORE_FULL, held)

    def check_away(self, slots: Slots, node: Node) -> None:
        """`Denied` where the node may not be away beside those that are."""
        away = {name for name, other in self.nodes.items() if is_away(other)} | slots.nodes
        limit = away_limit(self.nodes.values(), self.selection, self.policy)
        full = limit.why_full(node.name, away)
        if full:
            raise Denied(AnswerKind.MAX_UNAVAILABLE, text(full))
        for other in sorted(slots.nodes & self.nodes.keys()):
            self._check_beside(self.nodes[other], node)

    def _check_beside(self, other: Node, node: Node) -> None:
        rules = pools_of(self.policy).rules_for(node.labels)
        if is_control_plane(node, rules) and is_control_plane(other, rules):
            raise Denied(
                AnswerKind.NOT_NOW,
                f"control-plane nodes reboot one at a time, and {other.name} is under way",
            )
        label = rules.spread_by
        if label and node.labels.get(label, "") != other.labels.get(label, ""):
            there = other.labels.get(label, "none")
            raise Denied(
                AnswerKind.NOT_NOW, f"--spread-by {label}: {other.name} of {there} is under way"
            )


def take_slot(slots: Slots, slot: Slot, rules: GroupRules, limits: SlotLimits) -> Slots:
    """Take this slot; the same slots where its node holds one already, `Denied` where there is no room."""
    if slots.of_node(slot.node) is not None:
        return slots
    limits.check_group(slots, slot.group, rules)
    limits.check_away(slots, limits.nodes[slot.node])
    return slots.with_slot(slot)


class SlotAdmission:
    """Decides on hosts that hold no slot. For many threads at once."""

    def __init__(self, world: ServerContext) -> None:
        self._settings = settings = world.settings
        self._world = world
        self._machines = world.machines
        self._api = world.patient_api
        policy = settings.policy
        clock = world.clock
        namespace = settings.namespace
        self._schedule = Schedule.of(policy.gates.windows)
        self._memory = CachedValue(lambda: read_memory(self._api, namespace), _FRESH, clock)
        self._record = CachedValue(lambda: read_record(self._api, namespace), _FRESH, clock)
        self._coordinators = CachedValue(
            lambda: read_coordinators(self._api)[0], _FRESH_COORDINATORS, clock
        )
        self._forecaster = CachedValue(
            lambda: DrainForecaster.of(read_snapshot(self._api), policy),
            _FRESH_FORECAST,
            clock,
            _SHARE,
        )
        # a forecast moves pods to and fro in the rooms of the one reading
        self._forecasting = threading.Lock()

    def take(self, ask: Ask, name: str, rules: GroupRules) -> Slots:
        """Take a slot for this node; `Denied` where it may not have one, `ApiError` where that cannot be told."""
        self._check_cheaply(ask, name, rules)
        # what is good enough for a no is none for a yes: a pause, or a failure, may have come since
        self._memory.forget()
        self._check_memory()
        node = read_node(self._api, name)
        candidate = self._eligible(node)
        self._check_rivals()
        run = f"{RUN_PREFIX}{secrets.token_hex(6)}"
        at = timestamp(self._world.now)
        slot = Slot(ask.group, node.name, node.uid, ask.id, run, at, node.boot_id, version_of(node))
        self._check_gates(node, slot)
        self._check_drain(candidate)
        nodes = {fresh.name: fresh for fresh in read_nodes(self._api)}
        if name_of(ask.id, nodes.values()) != name:
            raise Denied(AnswerKind.UNKNOWN_ID, f"this id is not the one of {name} any more")
        limits = self._limits(nodes)
        return self._world.book.change(partial(take_slot, slot=slot, rules=rules, limits=limits))

    def _check_cheaply(self, ask: Ask, name: str, rules: GroupRules) -> None:
        """By what is known already, but for a look at the slots and the Lease now and then."""
        slots = self._world.book.seen(_FRESH / 2)
        nodes = self._machines.nodes
        limits = self._limits(nodes)
        limits.check_group(slots, ask.group, rules)
        if not select_nodes((nodes[name],), self._settings.selection):
            raise Denied(
                AnswerKind.NODE_EXCLUDED, f"{name} is left out by --selector, --node or --exclude"
            )
        policy = self._settings.policy
        pool = pools_of(policy).of(nodes[name].labels)
        if closed := self._schedule.in_pool(policy, pool).why_closed(self._world.clock.now()):
            raise Denied(AnswerKind.OUTSIDE_WINDOW, text(closed))
        if other := self._world.leadership.other:
            raise Denied(AnswerKind.LOCKED_BY_ROLLOUT, f"another rollout is running: {other}")
        self._check_unfinished(nodes)
        limits.check_away(slots, nodes[name])
        self._check_memory()

    def _limits(self, nodes: Mapping[str, Node]) -> SlotLimits:
        return SlotLimits(nodes, self._settings.selection, self._settings.policy)

    def _check_memory(self) -> None:
        memory = self._memory.now()
        try:
            require_memory(memory)
        except BlockedError as error:
            raise Denied(AnswerKind.API_ERROR, error.message) from error
        if pause := all_paused(memory, self._api.server_time()):
            raise Denied(AnswerKind.PAUSED, text(pause))

    def _eligible(self, node: Node) -> Candidate:
        """By the rules of a plan, for a host that has just said that it waits for a reboot; else `Denied`."""
        policy = self._settings.policy
        facts = facts_of(node)
        selection = self._settings.selection
        limit = policy.failures_allowed(len(select_nodes(self._machines.nodes.values(), selection)))
        now, memory = self._api.server_time(), self._memory.now()
        rules = EligibilityInputs(
            now, memory, selection, limit, policy.include_held, unattended=True
        )
        candidate = Candidate(node, facts, pools_of(policy).rules_for(node.labels), rules)
        if objection := exclusion(candidate):
            raise Denied(
                _KINDS.get(objection.reason, AnswerKind.NODE_EXCLUDED),
                f"{node.name}: {objection.message}",
            )
        is_unknown = not facts.update.new_version
        if is_unknown and (held := why_maybe_held(facts.running_version, rules)):
            raise Denied(AnswerKind.VERSION_HELD, f"{node.name}: {text(held)}")
        return candidate

    def _check_unfinished(self, nodes: Mapping[str, Node]) -> None:
        """No rollout of a person or a pass is left unfinished."""
        others = (
            node
            for node in nodes.values()
            if not is_fleetlock_run(node.annotations.get(marks.RUN, ""))
        )
        unfinished = assess(self._record.now(), others)
        if unfinished is not None and unfinished.blocks:
            what = f"the rollout {unfinished.run or 'of unknown id'} is running or interrupted"
            raise Denied(AnswerKind.LOCKED_BY_ROLLOUT, f"{what}: rollout resume, or rollout abort")

    def _check_rivals(self) -> None:
        """No other reboot coordinator is at work."""
        nodes = tuple(self._machines.nodes.values())
        snapshot = ClusterSnapshot(
            NOWHERE, nodes, (), (), (), (), coordinators=self._coordinators.now()
        )
        if at_work := rivals(snapshot, self._settings.policy.gates.ignored_rivals):
            raise Denied(AnswerKind.RIVAL, f"{at_work[0].object} {at_work[0].message}")

    def _check_drain(self, candidate: Candidate) -> None:
        """Check that its drain can end, by one reading of the cluster for all hosts that ask within some seconds."""
        forecaster = self._forecaster.now()
        with self._forecasting:
            blockers = forecaster.forecast(candidate, facts_of(candidate.node)).blockers
        if blockers:
            first = blockers[0]
            more = f", and {len(blockers) - 1} more" if len(blockers) > 1 else ""
            why = f"{first.kind}: {first.object} {first.message}{more}"
            raise Denied(
                AnswerKind.DRAIN_BLOCKED, f"the drain of {candidate.node.name} would fail: {why}"
            )

    def _check_gates(self, node: Node, slot: Slot) -> None:
        """Ask what may hold an untouched node: the time left in a window, pods that block it, alerts."""
        policy = self._settings.policy
        clock = self._world.clock
        plan = plan_of(node, slot, self._settings.selection, policy, clock.now())
        cluster = PatientApi(self._api, clock, seconds=PATIENCE)
        report = self._world.quiet
        gates = PolicyGates(plan, cluster, report, StopRequest(), self._world.gates)
        finding = gates.hold(plan.nodes[0]).finding
        if finding:
            raise Denied(AnswerKind.HELD_BY_GATE, f"{node.name}: {text(finding)}")
