import secrets
import threading
from collections.abc import Collection, Mapping
from datetime import datetime
from functools import partial

from msgspec import Struct

from rollout.errors import BlockedError
from rollout.execution.base.cached_value import CachedValue
from rollout.execution.base.deadline import GracefulStop
from rollout.execution.gates import PolicyGates
from rollout.execution.record.memory import require_readable_memory
from rollout.execution.record.record import read_record
from rollout.execution.record.unfinished import assess
from rollout.gather.cluster.documents import read_memory
from rollout.gather.cluster.rivals import read_coordinators
from rollout.gather.cluster.snapshot import read_node, read_nodes, read_snapshot
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.fleetlock import RUN_PREFIX, GroupRules, Slot, Slots, is_fleetlock_run
from rollout.model.plan import ExclusionReason
from rollout.model.policy import Policy, Selection
from rollout.model.selectors import parse_selector
from rollout.model.text import shortened
from rollout.model.timestamps import timestamp
from rollout.planning.drain.forecast import DrainForecaster
from rollout.planning.eligibility.away import AwayLimit, away_reasons
from rollout.planning.eligibility.candidates import Candidate, is_control_plane, why_excluded
from rollout.planning.eligibility.judgement import EligibilityInputs, why_maybe_held
from rollout.planning.eligibility.memory import why_all_paused
from rollout.planning.eligibility.pools import pools_of
from rollout.planning.eligibility.rivals import rival_blockers
from rollout.planning.eligibility.windows import Schedule
from rollout.server.nodes import (
    facts_of,
    node_of_host,
    plan_of,
    select_nodes,
    version_of,
)
from rollout.server.protocol import AnswerKind, Denied, HostRequest
from rollout.server.state import ServerContext
from rollout.wording import text
from rollout.wording.words import object_name, rollout_name

_MOST_NAMES = 3
# In seconds: documents up to this age may deny a slot.
_DOCUMENTS_FRESH = 2.0
_FORECAST_FRESH = 2.0
_COORDINATORS_FRESH = 60.0
# Reading 30,000 pods takes 4 s; forecasts get at most this share of the time.
_FORECAST_SHARE = 0.1

_KIND_BY_REASON = {
    ExclusionReason.PAUSED: AnswerKind.PAUSED,
    ExclusionReason.RIVAL: AnswerKind.RIVAL,
    ExclusionReason.FAILED_RECENTLY: AnswerKind.FAILED_RECENTLY,
    ExclusionReason.VERSION_HELD: AnswerKind.VERSION_HELD,
}


def away_limit(nodes: Collection[Node], selection: Selection, policy: Policy) -> AwayLimit:
    pool_by_node = pools_of(policy).pool_by_node(select_nodes(nodes, selection))
    return AwayLimit.of(policy, len(pool_by_node), pool_by_node, nodes)


class SlotLimits(Struct, frozen=True):
    nodes: Mapping[str, Node]
    selection: Selection
    policy: Policy
    now: datetime | None

    def check_group(self, slots: Slots, group: str, rules: GroupRules) -> None:
        group_size = self._group_size(rules) if rules.slots.is_share else 0
        most = rules.slots.of(group_size)
        if len(slots.counted(group)) >= most:
            holder_names = [slot.node for slot in slots.counted(group)]
            holders = shortened(holder_names, _MOST_NAMES)
            message = f"all {most} slots of the group {group} are held, by {holders}"
            raise Denied(AnswerKind.SEMAPHORE_FULL, message)

    def _group_size(self, rules: GroupRules) -> int:
        selector = parse_selector(rules.selector)
        nodes = select_nodes(self.nodes.values(), self.selection)
        return sum(selector.matches(node.labels) for node in nodes)

    def check_away(self, slots: Slots, node: Node) -> None:
        unavailable = away_reasons(self.nodes.values(), self.policy, self.now)
        away = slots.nodes | unavailable.keys()
        limit = away_limit(self.nodes.values(), self.selection, self.policy)
        why_full = limit.why_full(node.name, away)
        if why_full:
            raise Denied(AnswerKind.MAX_UNAVAILABLE, text(why_full))
        for name in sorted(slots.nodes & self.nodes.keys()):
            self._check_beside(self.nodes[name], node)

    def _check_beside(self, other: Node, node: Node) -> None:
        # The requesting node's rules decide for both nodes.
        rules = pools_of(self.policy).rules_of(node.labels)
        if is_control_plane(node, rules) and is_control_plane(other, rules):
            raise Denied(
                AnswerKind.NOT_NOW,
                f"control-plane nodes reboot one at a time, and {other.name} holds a slot",
            )
        label = rules.spread_by
        has_other_value = node.labels.get(label, "") != other.labels.get(label, "")
        if label and has_other_value:
            other_value = other.labels.get(label, "none")
            raise Denied(
                AnswerKind.NOT_NOW,
                f"--spread-by {label}: nodes with different values are not rebooted at the same"
                f" time, and {other.name} ({other_value}) holds a slot",
            )


def reserve_within_limits(slots: Slots, slot: Slot, rules: GroupRules, limits: SlotLimits) -> Slots:
    if slots.of_node(slot.node) is not None:
        return slots
    limits.check_group(slots, slot.group, rules)
    limits.check_away(slots, limits.nodes[slot.node])
    return slots.add(slot)


class SlotAdmission:
    """Reserves slots, for many threads. Each check raises `Denied`."""

    def __init__(self, server: ServerContext) -> None:
        self._settings = settings = server.settings
        self._server = server
        self._nodes = server.nodes
        self._api = server.api_for_host
        policy = settings.policy
        clock = server.clock
        namespace = settings.namespace
        self._schedule = Schedule.of(policy.gates.windows)
        self._memory = CachedValue(
            lambda: read_memory(self._api, namespace), _DOCUMENTS_FRESH, clock
        )
        self._record = CachedValue(
            lambda: read_record(self._api, namespace), _DOCUMENTS_FRESH, clock
        )
        self._coordinators = CachedValue(
            lambda: read_coordinators(self._api).items, _COORDINATORS_FRESH, clock
        )
        self._forecaster = CachedValue(
            lambda: DrainForecaster.of(read_snapshot(self._api), policy),
            _FORECAST_FRESH,
            clock,
            share=_FORECAST_SHARE,
        )
        self._forecast_lock = threading.Lock()

    def reserve(self, request: HostRequest, cached_node: Node, rules: GroupRules) -> None:
        # 1. Cached state, which denies most requests.
        self._check_cached_state(request, cached_node, rules)

        # 2. Reads of the cluster, the slowest last.
        self._memory.forget()
        self._check_memory()
        node = read_node(self._api, cached_node.name)
        if not node.boot_id:
            # Nothing could prove the reboot.
            raise Denied(AnswerKind.NODE_EXCLUDED, f"{node.name}: its kubelet reports no boot ID")
        candidate = self._require_eligible(node)
        self._check_rivals()
        slot = self._new_slot(request, node)
        self._check_gates(node, slot)
        self._check_drain(candidate)

        # 3. What may have changed meanwhile: the ID and, with the write, the limits.
        nodes = {fresh.name: fresh for fresh in read_nodes(self._api)}
        if node_of_host(request.id, nodes.values()).name != node.name:
            raise Denied(AnswerKind.UNKNOWN_ID, f"this ID no longer belongs to {node.name}")
        limits = self._limits(nodes)
        self._server.slots.change(
            partial(reserve_within_limits, slot=slot, rules=rules, limits=limits)
        )

    def _new_slot(self, request: HostRequest, node: Node) -> Slot:
        return Slot(
            group=request.group,
            node=node.name,
            node_uid=node.uid,
            id=request.id,
            run_id=f"{RUN_PREFIX}{secrets.token_hex(6)}",
            since=timestamp(self._server.now),
            boot_id=node.boot_id,
            version=version_of(node),
        )

    def _check_cached_state(self, request: HostRequest, node: Node, rules: GroupRules) -> None:
        slots = self._server.slots.read_unless_fresh()
        nodes = self._nodes.require_all()
        limits = self._limits(nodes)
        limits.check_group(slots, request.group, rules)
        is_selected = bool(select_nodes((node,), self._settings.selection))
        if not is_selected:
            raise Denied(
                AnswerKind.NODE_EXCLUDED,
                f"{node.name} is left out by --selector, --node or --exclude",
            )
        policy = self._settings.policy
        pool = pools_of(policy).pool_of(node.labels)
        why_closed = self._schedule.in_pool(policy, pool).why_closed(self._server.clock.now())
        if why_closed:
            raise Denied(AnswerKind.OUTSIDE_WINDOW, text(why_closed))
        holder = self._server.leadership.other_rollout()
        if holder:
            raise Denied(AnswerKind.LOCKED_BY_ROLLOUT, f"another rollout is running: {holder}")
        self._check_unfinished(nodes)
        limits.check_away(slots, node)
        self._check_memory()

    def _limits(self, nodes: Mapping[str, Node]) -> SlotLimits:
        settings = self._settings
        return SlotLimits(nodes, settings.selection, settings.policy, self._api.server_time())

    def _check_memory(self) -> None:
        memory = self._memory.get()
        try:
            require_readable_memory(memory)
        except BlockedError as error:
            raise Denied(AnswerKind.API_ERROR, error.message) from error
        pause = why_all_paused(memory, self._api.server_time())
        if pause:
            raise Denied(AnswerKind.PAUSED, text(pause))

    def _require_eligible(self, node: Node) -> Candidate:
        policy = self._settings.policy
        facts = facts_of(node)
        nodes = self._nodes.require_all()
        inputs = EligibilityInputs(
            now=self._api.server_time(),
            memory=self._memory.get(),
            selection=self._settings.selection,
            failure_limit=self._settings.failure_limit(nodes.values()),
            include_held=policy.include_held,
            unattended=True,
        )
        candidate = Candidate(node, facts, pools_of(policy).rules_of(node.labels), inputs)
        objection = why_excluded(candidate)
        is_version_known = bool(facts.update.new_version)
        if objection is None and not is_version_known:
            objection = why_maybe_held(facts.running_version, inputs)
        if objection:
            kind = _KIND_BY_REASON.get(objection.kind, AnswerKind.NODE_EXCLUDED)
            raise Denied(kind, f"{node.name}: {text(objection)}")
        return candidate

    def _check_unfinished(self, nodes: Mapping[str, Node]) -> None:
        other_nodes = [
            node
            for node in nodes.values()
            if not is_fleetlock_run(node.annotations.get(marks.RUN, ""))
        ]
        unfinished = assess(self._record.get(), other_nodes)
        if unfinished is not None and unfinished.blocks_others:
            state = f"{rollout_name(unfinished.run_id)} is running or interrupted"
            raise Denied(AnswerKind.LOCKED_BY_ROLLOUT, f"{state}: rollout resume, or rollout abort")

    def _check_rivals(self) -> None:
        ignored = self._settings.policy.gates.ignored_rivals
        nodes = self._nodes.require_all()
        blockers = rival_blockers(self._coordinators.get(), nodes.values(), ignored)
        if blockers:
            first = blockers[0]
            raise Denied(AnswerKind.RIVAL, f"{object_name(first.object)}: {first.message}")

    def _check_drain(self, candidate: Candidate) -> None:
        forecaster = self._forecaster.get()
        with self._forecast_lock:
            blockers = forecaster.forecast(candidate, facts_of(candidate.node)).blockers
        if blockers:
            first = blockers[0]
            more = f", and {len(blockers) - 1} more" if len(blockers) > 1 else ""
            why = f"{first.kind}: {object_name(first.object)}: {first.message}{more}"
            raise Denied(
                AnswerKind.DRAIN_BLOCKED, f"the drain of {candidate.node.name} would fail: {why}"
            )

    def _check_gates(self, node: Node, slot: Slot) -> None:
        policy = self._settings.policy
        clock = self._server.clock
        selection = self._settings.selection
        plan = plan_of(node, slot, selection=selection, policy=policy, now=clock.now())
        cluster = self._server.cluster_for_host
        report = self._server.silent_report
        gates = PolicyGates(plan, cluster, report, stop=GracefulStop(), ports=self._server.gates)
        finding = gates.ask(plan.nodes[0]).finding
        if finding:
            raise Denied(AnswerKind.HELD_BY_GATE, f"{node.name}: {text(finding)}")
