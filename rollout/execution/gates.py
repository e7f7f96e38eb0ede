"""The gates that a policy asks for, and those of this process: command, confirmation."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from rollout.errors import ApiNotFoundError, BlockedError, GateError, InterruptedRunError
from rollout.execution.base.deadline import Deadline, PatientApi, StopRequest
from rollout.execution.base.kept import CachedValue
from rollout.execution.base.reporting import Reporter
from rollout.execution.node.context import NodeContext, NodePlaybooks
from rollout.execution.node.failures import NotStartedError
from rollout.execution.record.memory import RunMemory
from rollout.gather.cluster.snapshot import read_node, read_node_pods, read_nodes, read_pods
from rollout.gather.cluster.storage import read_stored
from rollout.model.cluster import OSD_APP
from rollout.model.finding import (
    AlertsFiring,
    AlertsNotAsked,
    AlertsUnreadable,
    BlockedNow,
    BlockingPods,
    CommandRefused,
    DeadlineTooNear,
    Finding,
    GateTimeout,
    NoWindowFits,
    WaveNotConfirmed,
    WindowTooShort,
)
from rollout.model.gates import GateVariable
from rollout.model.plan import Blocker, PlannedNode, RolloutPlan, Wave
from rollout.model.policy import Policy
from rollout.model.quantity import Duration
from rollout.planning.eligibility.away import ControlPlane, is_away, storage_blockers
from rollout.planning.eligibility.candidates import is_control_plane
from rollout.planning.eligibility.windows import Schedule
from rollout.ports import ClusterApi
from rollout.wording import text

_FRESH_SECONDS = 5.0
# The key of the deadline for gates that hold every node. No node has an empty name.
_ANY_NODE = ""
_ASSUMED = Duration(600)
# Characters. Linux takes 128 KiB.
_LONGEST_VARIABLE = 100_000


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a node may not start now, None if it may. `final`: waiting will not change that.

    `is_general`: it holds every other node as well, so that the others need not be asked about.
    """

    finding: Finding | None = None
    final: bool = False
    is_general: bool = False


OPEN = Hold()


GateCommand = Callable[[Mapping[str, str], float, Callable[[], bool]], str]
"""Run the operator's own command with this environment, for so many seconds or until stopped: why it is a no."""
Confirmation = Callable[[str, Callable[[], bool]], bool]
"""Ask somebody at a terminal, unless stopped meanwhile: whether they agree."""
AlertSource = Callable[[], tuple[str, ...]]
"""Return the names of alerts that count; `GateError` where what watches over the cluster cannot be asked."""


@dataclass(frozen=True, slots=True)
class GatePorts:
    """What the gates of one process ask outside the cluster; `end` is by when its nodes have to be done."""

    command: GateCommand | None = None
    confirmation: Confirmation | None = None
    alerts: AlertSource | None = None
    playbooks: NodePlaybooks | None = None
    end: Deadline | None = None


@dataclass
class PolicyGates:
    """All gates of one run. `hold` is asked by one thread, the rest of each node by its own.

    What keeps untouched nodes from beginning is one list of conditions, asked when a node's turn
    comes and once more right before its cordon.
    """

    plan: RolloutPlan
    cluster: PatientApi
    report: Reporter
    stop: StopRequest
    ports: GatePorts
    memory: RunMemory | None = None

    def __post_init__(self) -> None:
        self._policy = self.plan.policy.gates
        self._schedule = Schedule.of(self._policy.windows)
        self._schedules = {
            pool: self._schedule.in_pool(self.plan.policy, pool)
            for pool in {node.pool for node in self.plan.nodes}
        }
        self._wave_of = {node.name: wave for wave in self.plan.waves for node in wave.nodes}
        self._held: dict[str, Deadline] = {}
        self._reported: dict[str, Finding] = {}
        self._alerts = CachedValue(
            lambda: _alerts_of(self.ports.alerts), _FRESH_SECONDS, self.cluster.clock
        )
        # the cheapest first; what the bounded ones say is waited for up to gates.timeout
        control_plane = partial(self._blocked, control_plane_blockers)
        stored = partial(self._blocked, stored_blockers)
        self._bounded = (self._blocking_pods, control_plane, stored, self._alert)
        self._conditions = (self._too_late, self._window, self._remembered, *self._bounded)

    def before_rollout(self) -> None:
        """Ask the command; `BlockedError` where it does not let pass."""
        refused = self._command("rollout", {})
        if refused is None:
            return
        message = f"not started: {text(refused)}"
        if self._stopped():
            raise InterruptedRunError(message)
        raise BlockedError(message, hint="See gates.command.")

    def before_wave(self, wave: Wave) -> Finding | None:
        """Return why the wave may not start: by the windows, the operator or the command."""
        now = self.cluster.clock.now()
        closed = None if self._policy.windows.wait else self._schedule.why_closed(now)
        if closed:
            return closed
        names = ", ".join(node.name for node in wave.nodes)
        question = f"Wave {wave.index} of {self.plan.last_wave}: {names}. Start it?"
        if self.ports.confirmation and not self.ports.confirmation(question, self._stopped):
            return WaveNotConfirmed(wave.index)
        return self._command("wave", _about(wave, self.plan))

    def hold(self, node: PlannedNode) -> Hold:
        """Ask all conditions, the cheapest first."""
        for condition in self._conditions:
            hold = condition(node)
            if hold.finding and not hold.final and condition in self._bounded:
                hold = self._within_patience(node, hold.finding, is_general=hold.is_general)
            if hold.finding:
                if not hold.final:
                    self._report_once(_ANY_NODE if hold.is_general else node.name, hold.finding)
                return hold
        self._held.pop(node.name, None)
        # what held any node is over: it is news when it comes again
        self._reported.pop(_ANY_NODE, None)
        return OPEN

    def refusal(self, node: PlannedNode) -> Finding | None:
        """Ask all conditions, the cheapest last: what they say has to hold until the write that follows."""
        if self.memory is not None:
            self.memory.expire()
        for condition in reversed(self._conditions):
            finding = condition(node).finding
            if finding:
                return finding
        return None

    def _remembered(self, node: PlannedNode) -> Hold:
        """Return what is remembered against starting the node, or any node."""
        return Hold(self.memory.why_not_to_start(node) if self.memory else None, final=True)

    def before_node(self, context: NodeContext) -> None:
        """Ask the command."""
        wave = self._wave_of[context.name]
        about = {
            **_about(wave, self.plan),
            GateVariable.NODE: context.name,
            GateVariable.ADDRESS: context.host.host.address,
            GateVariable.RUNNING_VERSION: context.planned.running_version,
            GateVariable.STAGED_VERSION: context.planned.staged_version,
        }
        if refused := self._command("node", about):
            raise NotStartedError(finding=refused)

    def is_shut(self, planned: PlannedNode) -> bool:
        """Ask the windows anew."""
        return self._schedules[planned.pool].why_closed(self.cluster.clock.now()) is not None

    def _stopped(self) -> bool:
        return self.stop.requested

    def _command(self, stage: str, about: Mapping[str, str]) -> CommandRefused | None:
        if self.ports.command is None:
            return None
        environment = {GateVariable.STAGE: stage, GateVariable.RUN: self.plan.plan_id, **about}
        answer = self.ports.command(environment, self._policy.timeout, self._stopped)
        return CommandRefused(answer) if answer else None

    def _window(self, node: PlannedNode) -> Hold:
        schedule = self._schedules[node.pool]
        if not schedule:
            return OPEN
        now = self.cluster.clock.now()
        needed = self._estimated(node)
        if not schedule.fits_ever(now, needed):
            return Hold(NoWindowFits(Duration(round(needed))), final=True)
        finding: Finding | None = schedule.why_closed(now)
        opening = schedule.current(now)
        if opening:
            left = (opening.end - now).total_seconds()
            if left >= needed:
                return OPEN
            finding = WindowTooShort(
                left=Duration(round(left)),
                needed=Duration(round(needed)),
                ends_in_freeze=bool(schedule.freezing(opening.end)),
                opens=schedule.next_opening(now),
            )
        wait = self._policy.windows.wait
        return Hold(finding, final=not wait, is_general=wait and not schedule.own)

    def _estimated(self, node: PlannedNode) -> float:
        """Seconds that a node is estimated to take; 10 minutes where the plan estimates nothing."""
        estimate = self._wave_of[node.name].estimate
        return estimate.drain + estimate.reboot or _ASSUMED

    def _too_late(self, node: PlannedNode) -> Hold:
        """Whether this process has not the time to take a node."""
        needed = self._estimated(node)
        end = self.ports.end
        if end is None or end.remaining >= needed:
            return OPEN
        left = Duration(round(end.remaining))
        return Hold(DeadlineTooNear(left, Duration(round(needed))), final=True)

    def _blocking_pods(self, node: PlannedNode) -> Hold:
        for selector in self._policy.blocking_pods:
            pods = self.cluster.ask(
                lambda api: read_node_pods(api, node.name, selector)  # noqa: B023 - called at once
            )
            running = tuple(pod.key for pod in pods if not pod.finished)
            if running:
                return Hold(BlockingPods(running, selector))
        return OPEN

    def _blocked(
        self, look: Callable[[ClusterApi, str, Policy], Iterable[Blocker]], node: PlannedNode
    ) -> Hold:
        """Return the first in the way of a node that its operator has not accepted with the plan."""
        accepted = {entry.object for entry in self.plan.blockers if entry.node == node.name}
        found = self.cluster.ask(lambda api: look(api, node.name, self.plan.policy))
        blockers = (entry for entry in found if entry.object not in accepted)
        first = next(blockers, None)
        return Hold(BlockedNow(first.object, first.message) if first else None)

    def _alert(self, _node: PlannedNode) -> Hold:
        """Whether alerts keep nodes from beginning; they do where no server is asked for those that the rules want."""
        if not (url := self._policy.alerts.url):
            return OPEN
        if self.ports.alerts is None:
            return Hold(AlertsNotAsked(url), final=True)
        finding = self._alerts.now()
        if finding is None:
            self._held.pop(_ANY_NODE, None)
        return Hold(finding, is_general=finding is not None)

    def _within_patience(self, node: PlannedNode, finding: Finding, *, is_general: bool) -> Hold:
        """Wait up to gates.timeout: for each node, and once for the whole rollout if a gate holds every node."""
        about = _ANY_NODE if is_general else node.name
        timeout = self._policy.timeout
        deadline = self._held.setdefault(about, self.cluster.deadline(timeout))
        if not deadline.expired:
            return Hold(finding, is_general=is_general)
        return Hold(GateTimeout(finding, timeout), final=True, is_general=is_general)

    def _report_once(self, about: str, finding: Finding) -> None:
        """Report what holds a node, or every node, until something else does."""
        if self._reported.get(about) != finding:
            self._reported[about] = finding
            self.report.notice(f"{about or 'no node is started'}: {text(finding)}")


def _alerts_of(source: AlertSource | None) -> AlertsFiring | AlertsUnreadable | None:
    """Return why alerts keep nodes from being started, or None."""
    try:
        active = source() if source else ()
    except GateError as error:
        return AlertsUnreadable(error.message)
    return AlertsFiring(active) if active else None


def _about(wave: Wave, plan: RolloutPlan) -> dict[str, str]:
    return {
        GateVariable.WAVE: str(wave.index),
        GateVariable.WAVES: str(plan.last_wave),
        GateVariable.NODES: _fitting(" ".join(node.name for node in wave.nodes)),
    }


def _fitting(names: str) -> str:
    """As many whole names as a system takes in one variable: a wave whose nodes follow one another may be the fleet."""
    return (
        names
        if len(names) <= _LONGEST_VARIABLE
        else names[: names.rindex(" ", 0, _LONGEST_VARIABLE)]
    )


def control_plane_blockers(api: ClusterApi, name: str, policy: Policy) -> Iterable[Blocker]:
    """Why this node may not be away now.

    Only the control plane's pods are read, and nothing of any other node.
    """
    try:
        if not is_control_plane(read_node(api, name), policy):
            return ()
    except ApiNotFoundError:
        return ()
    nodes = [node for node in read_nodes(api) if is_control_plane(node, policy)]
    pods = [pod for node in nodes for pod in read_node_pods(api, node.name)]
    return ControlPlane.of(nodes, pods, policy).blockers(name)


def stored_blockers(api: ClusterApi, name: str, _policy: Policy) -> Iterable[Blocker]:
    """Why stored data keeps this node from being away now; nothing where it may not be seen.

    Nothing but the node's own pods is read where it holds none.
    """
    pods = read_node_pods(api, name)
    namespaces = {pod.namespace for pod in pods if pod.is_osd}
    if not namespaces and not any(pod.is_longhorns for pod in pods):
        return ()
    osds = [pod for namespace in namespaces for pod in read_pods(api, namespace, f"app={OSD_APP}")]
    stored, _unseen = read_stored(api, (*pods, *osds))
    away = {node.name for node in read_nodes(api) if is_away(node)}
    return storage_blockers(name, stored, away)
