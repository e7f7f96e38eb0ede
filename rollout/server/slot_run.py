"""One slot's turn: its node's whole way, told to whoever watches, and what the cluster needs to settle from it.

It is the run of a plan of one node, with the steps of a host that asks for itself.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from rollout.errors import ApiError, SshError
from rollout.execution.base.deadline import Guard, PatientApi, StopRequest
from rollout.execution.base.reporting import Observers, OutageNotice
from rollout.execution.drain.task import Precedence
from rollout.execution.events import NodeEvents
from rollout.execution.node.steps import process_node
from rollout.execution.record.memory import change_memory
from rollout.execution.record.record import Health
from rollout.execution.rollout.ledger import Inheritance
from rollout.execution.rollout.ports import Ports, RunOptions
from rollout.execution.rollout.run import Run
from rollout.gather.cluster.snapshot import read_identity, read_nodes
from rollout.model import marks
from rollout.model.cluster import ClusterIdentity, Node
from rollout.model.fleetlock import Slot
from rollout.model.host import Host
from rollout.model.plan import PlannedNode
from rollout.model.progress import NodeResult, NodeStep, Outcome, Phase, RunResult, StepEvent
from rollout.planning.eligibility.memory import Ended, noted
from rollout.server.admission import away_limit
from rollout.server.holders import is_given_back
from rollout.server.nodes import node_of, plan_of, selected, staged_on, version_of
from rollout.server.state import World
from rollout.server.steps import HeldSlot


class NoShell:
    """Hosts that ask by themselves are not asked anything."""

    def run(self, *_ask: Any, **_how: Any) -> Any:
        """Raise `SshError`."""
        raise SshError("a FleetLock server asks no host")

    run_if = run_on_all = attending = run


@dataclass
class SlotRunner:
    """Runs turns, each in a thread of its own. `details` is what was told last of each node."""

    world: World
    ending: StopRequest
    details: dict[str, str] = field(default_factory=dict)
    _precedence: Precedence = field(default_factory=Precedence)

    def notify(self, event: StepEvent) -> None:
        """Keep what a step says."""
        if isinstance(event, NodeStep):
            self.details[event.node] = event.detail

    @cached_property
    def _cluster(self) -> ClusterIdentity:
        return read_identity(self.world.api)

    def run(self, slot: Slot, check: Guard, stop: StopRequest) -> NodeResult | None:
        """Return the node's end; None where there was nothing to do. `ApiError` where that cannot be told."""
        world, settings = self.world, self.world.settings
        node = node_of(world.api, slot)
        if node is None or self._is_over(slot, node):
            if node is not None and slot.released and node.boot_id == slot.boot_id and not is_given_back(slot, node):
                self._rest(slot)
            return None
        plan = plan_of(node, slot, settings.selection, settings.policy, world.clock.now(), self._cluster)
        begun = {slot.node: slot.run} if node.annotations.get(marks.RUN) == slot.run else {}
        with world.watched(plan) as observer:
            ports = Ports(world.api, NoShell(), world.clock, Observers((observer, self)), world.gates)
            with NodeEvents(world.api, plan.plan_id, plan.nodes, ports.observer, world.clock) as events:
                cluster = PatientApi(world.api, world.clock, OutageNotice(events.report), settings.api_patience)
                whole = len(selected(cluster.ask(read_nodes), settings.selection))
                options = RunOptions(whole, settings.holder, settings.namespace)
                hosts, inherited = {slot.node: Host(slot.node, "")}, Inheritance(begun)
                run = Run(plan, hosts, ports, options, stop, inherited, check, events.report, cluster)
                return self._told(slot, run)

    def _is_over(self, slot: Slot, node: Node) -> bool:
        """Whether nothing of ours stands on the node, and nothing is to be begun on it any more."""
        if node.annotations.get(marks.RUN) == slot.run:
            return False
        return is_given_back(slot, node) or slot.released or node.boot_id != slot.boot_id

    def _rest(self, slot: Slot) -> None:
        """Remember that a slot was taken and given up before anything was done to its node."""
        end = Ended(slot.node, "", Outcome.ABORTED, Phase.PENDING, slot.run, 1)
        with suppress(ApiError):
            change_memory(self.world.api, self.world.settings.namespace, partial(noted, end=end, now=self.world.now))

    def _told(self, slot: Slot, run: Run) -> NodeResult:
        report, ledger = run.report, run.ledger
        report.plan(run.plan)
        report.wave(run.plan.waves[0], 1)
        before = None if run.inherited.begun else run.settler.baseline([slot.node])
        result = self._processed(slot, run)
        if result.outcome is Outcome.FENCED:
            return result
        report.node_finished(result)
        if result.succeeded and before is not None:
            self._settle(slot, run, before)
        ledger.take(result)
        report.finished(RunResult(tuple(ledger.finished), tuple(ledger.skipped), tuple(ledger.not_started)))
        return result

    def _processed(self, slot: Slot, run: Run) -> NodeResult:
        entry, settings = run.plan.nodes[0], self.world.settings

        def remember(_planned: PlannedNode, outcome: Outcome, phase: Phase, unmoved: int) -> None:
            if ended := self._remembered(slot, entry):
                run.memory.note(ended, outcome, phase, unmoved)

        context = replace(
            run.context(entry),
            refusal=run.gates.refusal,
            limit=lambda nodes: away_limit(nodes, settings.selection, settings.policy),
            precedence=self._precedence,
            remember=remember,
        )
        result = process_node(context, HeldSlot(slot, self.world.book, settings.slot_timeout).steps)
        run.memory.report_held()
        return result

    def _remembered(self, slot: Slot, entry: PlannedNode) -> PlannedNode | None:
        """Return the node with the version that it has booted, which had waited; of one that is not back, FLUO's word.

        None where it was deleted: what ended so tells nothing of the Node that may have its name by now.
        """
        try:
            node = node_of(self.world.api, slot)
        except ApiError:
            return entry
        if node is None or node.boot_id in ("", entry.boot_id) or node.machine_id != entry.machine_id:
            return replace(entry, staged_version=staged_on(node)) if node else None
        version = version_of(node)
        return entry if version == slot.version else replace(entry, staged_version=version)

    def _settle(self, slot: Slot, run: Run, before: Health) -> None:
        """Hold the slot until the cluster is as well as before, within --settle-timeout; then for the soak."""
        away = self.world.book.latest.nodes - {slot.node}
        try:
            missing = run.settler.wait(before, 1, away, self.ending)
        except ApiError as error:
            missing = error.message
        if missing and not self.ending.requested:
            timeout = run.plan.policy.settle_timeout
            run.report.notice(f"after {slot.node} the cluster did not settle within {timeout}: {missing}")
        if soak := run.plan.policy.gates.soak:
            run.cluster.deadline(soak).wait_for(self.ending)
