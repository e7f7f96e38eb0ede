"""The gates that a policy asks for, and those of this process: command, confirmation."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from rollout.errors import ApiNotFoundError, BlockedError, GateError, InterruptedRunError
from rollout.execution.base.deadline import Deadline, PatientApi, StopRequest
from rollout.execution.base.kept import CachedValue
from rollout.execution.base.reporting import Reporter
from rollout.execution.node.context import NodeContext, NodePlaybooks
from rollout.execution.node.transitions import NotStartedError
from rollout.execution.record.memory import RunMemory
from rollout.gather.cluster.snapshot import read_node, read_node_pods, read_nodes, read_pods
from rollout.gather.cluster.storage import read_stored
from rollout.model.cluster import OSD_APP
from rollout.model.gates import GateVariable
from rollout.model.plan import Blocker, PlannedNode, RolloutPlan, Wave
from rollout.model.policy import Policy
from rollout.model.quantity import Duration
from rollout.model.text import shortened
from rollout.planning.eligibility.away import ControlPlane, is_away, storage_blockers
from rollout.planning.eligibility.candidates import is_control_plane
from rollout.planning.eligibility.windows import Schedule
from rollout.ports import ClusterApi

_FRESH_SECONDS = 5.0
# The key of the deadline for gates that hold every node. No node has an empty name.
_ANY_NODE = ""
_ASSUMED = Duration(600)
_NAMED = 3
# Characters. Linux takes 128 KiB.
_LONGEST_VARIABLE = 100_000


class Later(str):
    """A reason that passes by itself: a node that is not begun for it is for another time, and no trouble."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a node may not begin, empty where it may; `final` where no waiting will change that.

    `is_general`: it holds any other node as well, so that there is no use in asking about as many
    as there are.
    """

    why: str = ""
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
        self._reported: dict[str, str] = {}
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
        why = self._command("rollout", {})
        if why and self._stopped():
            raise InterruptedRunError(f"not started: {why}")
        if why:
            raise BlockedError(f"not started: {why}", hint="See gates.command.")

    def before_wave(self, wave: Wave) -> str:
        """Ask the windows, then the operator, then the command."""
        now = self.cluster.clock.now()
        if not self._policy.windows.wait and (why := self._schedule.closed(now)):
            return Later(why)
        names = ", ".join(node.name for node in wave.nodes)
        question = f"Wave {wave.index} of {self.plan.last_wave}: {names}. Start it?"
        if self.ports.confirmation and not self.ports.confirmation(question, self._stopped):
            return f"wave {wave.index} was not confirmed"
        return self._command("wave", _about(wave, self.plan))

    def hold(self, node: PlannedNode) -> Hold:
        """Ask all conditions, the cheapest first."""
        for condition in self._conditions:
            hold = condition(node)
            if hold.why and not hold.final and condition in self._bounded:
                hold = self._within_patience(node, hold)
            if hold.why:
                return self._report_once(_ANY_NODE if hold.is_general else node.name, hold)
        self._held.pop(node.name, None)
        # what held any node is over: it is news when it comes again
        self._reported.pop(_ANY_NODE, None)
        return OPEN

    def refusal(self, node: PlannedNode) -> str:
        """Ask all conditions, the cheapest last: what they say has to hold until the write that follows."""
        if self.memory is not None:
            self.memory.expire()
        holds = (condition(node) for condition in reversed(self._conditions))
        return next((hold.why for hold in holds if hold.why), "")

    def _remembered(self, node: PlannedNode) -> Hold:
        """Return what is held against a node, or any; a pause leaves it for another time."""
        if self.memory is None:
            return OPEN
        if why := self.memory.why_unreadable():
            return Hold(why, final=True)
        paused = self.memory.why_paused()
        return Hold(Later(paused) if paused else self.memory.why_held(node), final=True)

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
        if why := self._command("node", about):
            raise NotStartedError(why)

    def is_shut(self, planned: PlannedNode) -> bool:
        """Ask the windows anew."""
        return bool(self._schedules[planned.pool].closed(self.cluster.clock.now()))

    def _stopped(self) -> bool:
        return self.stop.requested

    def _command(self, stage: str, about: Mapping[str, str]) -> str:
        if self.ports.command is None:
            return ""
        environment = {GateVariable.STAGE: stage, GateVariable.RUN: self.plan.plan_id, **about}
        return self.ports.command(environment, self._policy.timeout, self._stopped)

    def _window(self, node: PlannedNode) -> Hold:
        schedule = self._schedules[node.pool]
        if not schedule:
            return OPEN
        now = self.cluster.clock.now()
        needed = self._estimated(node)
        if needed and not schedule.fits_ever(now, needed):
            return Hold(
                f"it is estimated to take {Duration(round(needed))}, longer than any maintenance"
                " window",
                final=True,
            )
        opening = schedule.current(now)
        if opening and (opening.end - now).total_seconds() >= needed:
            return OPEN
        wait = self._policy.windows.wait
        if opening:
            left = Duration(round((opening.end - now).total_seconds()))
            end = schedule.freezing(opening.end)
            within = "before the freeze" if end else "in the window"
            why = (
                f"only {left} left {within}, and it is estimated to take {Duration(round(needed))}"
            )
        else:
            why = schedule.why_closed(now)
        next_one = Later(f"{why}; {schedule.until(now)}")
        return Hold(next_one, final=not wait, is_general=wait and not schedule.own)

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
        needs = Duration(round(needed))
        why = Later(
            f"only {left} left until --active-deadline, and it is estimated to take {needs}"
        )
        return Hold(why, final=True)

    def _blocking_pods(self, node: PlannedNode) -> Hold:
        for selector in self._policy.blocking_pods:
            pods = self.cluster.ask(
                lambda api: read_node_pods(api, node.name, selector)  # noqa: B023 - called at once
            )
            if running := [pod.key for pod in pods if not pod.finished]:
                names = shortened(running, _NAMED)
                return Hold(f"pod {names} runs there (gates.blocking-pod-selector {selector})")
        return OPEN

    def _blocked(
        self, look: Callable[[ClusterApi, str, Policy], Iterable[Blocker]], node: PlannedNode
    ) -> Hold:
        """Return the first in the way of a node that its operator has not accepted with the plan."""
        accepted = {entry.object for entry in self.plan.blockers if entry.node == node.name}
        found = self.cluster.ask(lambda api: look(api, node.name, self.plan.policy))
        blockers = (entry for entry in found if entry.object not in accepted)
        return Hold(next((f"{entry.object} {entry.message}" for entry in blockers), ""))

    def _alert(self, _node: PlannedNode) -> Hold:
        """Whether alerts keep nodes from beginning; they do where no server is asked for those that the rules want."""
        if not (url := self._policy.alerts.url):
            return OPEN
        if self.ports.alerts is None:
            unasked = Later(
                f"alerts of {url} are not asked for: alerts.prometheus-url does not name it"
            )
            return Hold(unasked, final=True)
        why = self._alerts.now()
        if not why:
            self._held.pop(_ANY_NODE, None)
        return Hold(why, is_general=bool(why))

    def _within_patience(self, node: PlannedNode, hold: Hold) -> Hold:
        """Wait up to gates.timeout: for each node, and once for the whole rollout if a gate holds every node."""
        about = _ANY_NODE if hold.is_general else node.name
        deadline = self._held.setdefault(about, self.cluster.deadline(self._policy.timeout))
        if not deadline.expired:
            return hold
        why = Later(f"{hold.why}, for longer than gates.timeout {self._policy.timeout}")
        return Hold(why, final=True, is_general=hold.is_general)

    def _report_once(self, about: str, hold: Hold) -> Hold:
        """Tell once what holds a node up, or all of them."""
        if self._reported.get(about) != hold.why and not hold.final:
            self._reported[about] = hold.why
            self.report.notice(f"{about or 'no node is started'}: {hold.why}")
        return hold


def _alerts_of(source: AlertSource | None) -> str:
    """Which alerts keep nodes from being begun; empty for none."""
    try:
        active = source() if source else ()
    except GateError as error:
        return f"alerts cannot be read: {error.message}"
    return f"Prometheus has the alert {shortened(active, _NAMED)}" if active else ""


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
