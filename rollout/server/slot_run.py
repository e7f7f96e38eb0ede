"""One slot's turn: its node's whole way, told to whoever watches, and what the cluster needs to settle from it."""

from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

from rollout.errors import ApiError, SshError
from rollout.execution.base.deadline import Guard, PatientApi, StopRequest
from rollout.execution.base.reporting import Observers, OutageNotice, Reporter
from rollout.execution.drain.task import Precedence
from rollout.execution.events import NodeEvents
from rollout.execution.gates import PolicyGates
from rollout.execution.node.context import NodeContext, NodeHost, RememberingShell
from rollout.execution.node.steps import process_node
from rollout.execution.record.memory import RunMemory, change_memory
from rollout.execution.record.record import Health
from rollout.execution.rollout.ledger import Ledger
from rollout.execution.rollout.settle import Settler
from rollout.gather.cluster.snapshot import read_identity, read_nodes
from rollout.model import marks
from rollout.model.cluster import ClusterIdentity, Node
from rollout.model.fleetlock import Slot
from rollout.model.host import Host
from rollout.model.plan import PlannedNode, RolloutPlan
from rollout.model.progress import NodeResult, NodeStep, Outcome, Phase, RunResult, StepEvent
from rollout.planning.eligibility.memory import Ended, noted
from rollout.planning.eligibility.pools import pools_of
from rollout.ports import CommandResult
from rollout.server.admission import SlotAdmission
from rollout.server.holders import is_given_back
from rollout.server.nodes import node_of, plan_of, selected, staged_on, version_of
from rollout.server.state import World
from rollout.server.steps import HeldSlot


class NoShell:
    """Hosts that ask by themselves are not asked anything."""

    def run(self, *_ask: Any, **_how: Any) -> CommandResult:
        """Raise `SshError`."""
        raise SshError("a FleetLock server asks no host")

    run_if = run


class _Stage(NamedTuple):
    """What one turn has at hand, once it is known that there is something to do."""

    slot: Slot
    node: Node
    plan: RolloutPlan
    check: Guard
    stop: StopRequest
    cluster: PatientApi
    report: Reporter

    @property
    def is_taken_up(self) -> bool:
        return self.node.annotations.get(marks.RUN) == self.slot.run


class SlotRunner:
    """Runs turns, each in a thread of its own. `details` is what was told last of each node."""

    def __init__(self, world: World, ending: StopRequest) -> None:
        self._settings = world.settings
        self._world = world
        self._ending = ending
        self.details: dict[str, str] = {}
        self._precedence = Precedence()

    def notify(self, event: StepEvent) -> None:
        """Keep what a step says."""
        if isinstance(event, NodeStep):
            self.details[event.node] = event.detail

    @cached_property
    def _cluster(self) -> ClusterIdentity:
        return read_identity(self._world.api)

    def run(self, slot: Slot, check: Guard, stop: StopRequest) -> NodeResult | None:
        """Return the node's end; None where there was nothing to do. `ApiError` where that cannot be told."""
        node = node_of(self._world.api, slot)
        if node is None or self._is_over(slot, node):
            if node is not None and slot.released and node.boot_id == slot.boot_id and not is_given_back(slot, node):
                self._rest(slot)
            return None
        now, settings = self._world.clock.now(), self._settings
        plan = plan_of(node, slot, settings.selection, settings.policy, now, self._cluster)
        with self._world.watched(plan) as observer:
            observers = Observers((observer, self))
            with NodeEvents(self._world.api, plan.plan_id, plan.nodes, observers, self._world.clock) as events:
                outage = OutageNotice(events.report)
                cluster = PatientApi(self._world.api, self._world.clock, outage, settings.api_patience)
                return self._told(_Stage(slot, node, plan, check, stop, cluster, events.report))

    def _is_over(self, slot: Slot, node: Node) -> bool:
        """Whether nothing of ours stands on the node, and nothing is to be begun on it any more."""
        if node.annotations.get(marks.RUN) == slot.run:
            return False
        return is_given_back(slot, node) or slot.released or node.boot_id != slot.boot_id

    def _rest(self, slot: Slot) -> None:
        """Remember that a slot was taken and given up before anything was done to its node."""
        end = Ended(slot.node, "", Outcome.ABORTED, Phase.PENDING, slot.run, 1)
        with suppress(ApiError):
            change_memory(self._world.api, self._settings.namespace, partial(noted, end=end, now=self._world.now))

    def _told(self, stage: _Stage) -> NodeResult:
        report, plan = stage.report, stage.plan
        report.plan(plan)
        report.wave(plan.waves[0], 1)
        settler = Settler(stage.cluster, report, plan.policy)
        before = None if stage.is_taken_up else settler.baseline([stage.slot.node])
        result = self._processed(stage)
        if result.outcome is Outcome.FENCED:
            return result
        report.node_finished(result)
        if result.succeeded and before is not None:
            self._settle(stage, settler, before)
        ledger = Ledger()
        ledger.take(result)
        report.finished(RunResult(tuple(ledger.finished), tuple(ledger.skipped), tuple(ledger.not_started)))
        return result

    def _processed(self, stage: _Stage) -> NodeResult:
        plan, world = stage.plan, self._world
        limit = plan.policy.failures_allowed(len(selected(stage.cluster.ask(read_nodes), plan.selection)))
        run = (plan.plan_id, self._settings.namespace, limit, plan.policy.include_held)
        memory = RunMemory(stage.cluster, stage.check, stage.report, *run)
        gates = PolicyGates(plan, stage.cluster, stage.report, stage.stop, world.gates, memory)
        entry = plan.nodes[0]

        def remember(_planned: PlannedNode, outcome: Outcome, phase: Phase, unmoved: int = 0) -> None:
            if ended := self._remembered(stage, entry):
                memory.note(ended, outcome, phase, unmoved)

        context = NodeContext(
            entry,
            plan.plan_id,
            stage.cluster,
            stage.check,
            stage.report,
            world.clock.monotonic(),
            pools_of(plan.policy).rules(entry.pool),
            host=NodeHost(Host(entry.name, ""), entry, RememberingShell(NoShell())),
            gates=gates,
            admission=SlotAdmission(gates, self._settings),
            stop=stage.stop,
            is_taken_up=stage.is_taken_up,
            playbooks=world.gates.playbooks,
            precedence=self._precedence,
            remember=remember,
        )
        result = process_node(context, HeldSlot(stage.slot, self._world.book, self._settings.slot_timeout).steps)
        remember(entry, result.outcome, result.phase, result.unmoved)
        memory.report_held()
        return result

    def _remembered(self, stage: _Stage, entry: PlannedNode) -> PlannedNode | None:
        """Return the node with the version that it has booted, which had waited; of one that is not back, FLUO's word.

        None where it was deleted: what ended so tells nothing of the Node that may have its name by now.
        """
        try:
            node = node_of(self._world.api, stage.slot)
        except ApiError:
            return entry
        if node is None or node.boot_id in ("", entry.boot_id) or node.machine_id != entry.machine_id:
            return replace(entry, staged_version=staged_on(node)) if node else None
        version = version_of(node)
        return entry if version == stage.slot.version else replace(entry, staged_version=version)

    def _settle(self, stage: _Stage, settler: Settler, before: Health) -> None:
        """Hold the slot until the cluster is as well as before, within --settle-timeout; then for the soak."""
        away = self._world.book.latest.nodes - {stage.slot.node}
        try:
            missing = settler.wait(before, 1, away, self._ending)
        except ApiError as error:
            missing = error.message
        if missing and not self._ending.requested:
            timeout = stage.plan.policy.settle_timeout
            stage.report.notice(f"after {stage.slot.node} the cluster did not settle within {timeout}: {missing}")
        if soak := stage.plan.policy.gates.soak:
            stage.cluster.deadline(soak).wait_for(self._ending)
