from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from msgspec import Struct

from rollout.errors import ApiNotFoundError, BlockedError, GateError, InterruptedRunError
from rollout.execution.base.cached_value import CachedValue
from rollout.execution.base.deadline import Deadline, GracefulStop, PatientApi
from rollout.execution.base.gate_ports import AlertSource, GatePorts
from rollout.execution.base.health import ObjectHealth
from rollout.execution.base.reporting import Reporter
from rollout.execution.drain.controllers import find_busy_controller, has_pods_of_controllers
from rollout.execution.node.context import NodeContext
from rollout.execution.node.failures import NotStartedError
from rollout.execution.record.memory import RunMemory
from rollout.gather.cluster.snapshot import read_node, read_node_pods, read_nodes, read_pods
from rollout.gather.cluster.storage import read_stored_data
from rollout.model import finding as findings
from rollout.model.cluster import OSD_APP, Node, Pod
from rollout.model.finding import ControllerMoving, Finding
from rollout.model.gates import GateVariable
from rollout.model.plan import Blocker, PlannedNode, RolloutPlan, Wave
from rollout.model.policy import Policy
from rollout.model.quantity import Duration
from rollout.planning.eligibility.away import (
    ControlPlane,
    away_reasons,
    is_only_marked,
    storage_blockers,
)
from rollout.planning.eligibility.candidates import is_control_plane
from rollout.planning.eligibility.pools import pools_of
from rollout.planning.eligibility.windows import Schedule
from rollout.ports import ClusterApi
from rollout.wording import text

_FRESH_SECONDS = 5.0
_ANY_NODE = ""
_ASSUMED_ESTIMATE = Duration(600)
_LONGEST_VARIABLE = 100_000


class GateAnswer(Struct, frozen=True):
    # None if the node may start.
    finding: Finding | None = None
    # Waiting does not help.
    is_final: bool = False
    # It applies to all nodes.
    is_general: bool = False


OPEN = GateAnswer()


@dataclass
class PolicyGates:
    """Decides whether the rollout, a wave or a node may start.

    A bounded check holds a node for gates.timeout at most; then its answer is final.
    """

    plan: RolloutPlan
    cluster: PatientApi
    report: Reporter
    stop: GracefulStop
    ports: GatePorts
    memory: RunMemory | None = None

    def __post_init__(self) -> None:
        self._policy = self.plan.policy.gates
        self._schedule = Schedule.of(self._policy.windows)
        pools = {node.pool for node in self.plan.nodes}
        self._schedule_by_pool = {
            pool: self._schedule.in_pool(self.plan.policy, pool) for pool in pools
        }
        self._wave_by_node: dict[str, Wave] = {}
        # Seconds, by the wave's index.
        self._longest_waits: dict[int, int] = {}
        for wave in self.plan.waves:
            self._wave_by_node.update((node.name, wave) for node in wave.nodes)
            self._longest_waits[wave.index] = max(node.wait_seconds for node in wave.nodes)
        self._timeouts: dict[str, Deadline] = {}
        self._reported: dict[str, Finding] = {}
        self._alerts = CachedValue(
            lambda: _find_alert_problem(self.ports.alerts), _FRESH_SECONDS, self.cluster.clock
        )
        self.health = ObjectHealth(self.cluster, self._policy.healthy, self.ports.evaluate)
        self._object_problem = CachedValue(
            self.health.find_problem, _FRESH_SECONDS, self.cluster.clock
        )
        self._bounded_checks = (
            self._check_blocking_pods,
            self._check_control_plane,
            self._check_stored_data,
            self._check_controllers,
            self._check_alerts,
            self._check_health,
        )
        # Cheapest first.
        self._checks = (
            self._check_time_left,
            self._check_window,
            self._check_memory,
            *self._bounded_checks,
        )

    def run_command_for_rollout(self) -> None:
        refused = self._run_command("rollout", {})
        if refused is None:
            return
        message = f"not started: {text(refused)}"
        if self._is_stopped():
            raise InterruptedRunError(message)
        raise BlockedError(message, hint="See gates.command.")

    def ask_to_start_wave(self, wave: Wave) -> Finding | None:
        each_node_waits_for_window = self._policy.windows.wait
        if not each_node_waits_for_window:
            why_closed = self._schedule.why_closed(self.cluster.clock.now())
            if why_closed:
                return why_closed
        names = ", ".join(node.name for node in wave.nodes)
        question = f"Wave {wave.index} of {self.plan.last_wave}: {names}. Start it?"
        confirm = self.ports.confirmation
        is_confirmed = confirm is None or confirm(question, self._is_stopped)
        if not is_confirmed:
            return findings.WaveNotConfirmed(wave.index)
        return self._run_command("wave", _wave_variables(wave, self.plan))

    def ask(self, node: PlannedNode) -> GateAnswer:
        for check in self._checks:
            answer = check(node)
            if answer.finding is not None:
                is_bounded = check in self._bounded_checks
                return self._limit_hold(node, answer, answer.finding, is_bounded=is_bounded)
        self._end_timeouts(node)
        self._reported.pop(_ANY_NODE, None)
        return OPEN

    def _limit_hold(
        self, node: PlannedNode, answer: GateAnswer, finding: Finding, *, is_bounded: bool
    ) -> GateAnswer:
        held_node = _ANY_NODE if answer.is_general else node.name
        if not is_bounded:
            self._reset_timeouts(node, answer)
        elif not answer.is_final and self._start_timeout(held_node).expired:
            timeout = findings.GateTimeout(finding, self._policy.timeout)
            return GateAnswer(timeout, is_final=True, is_general=answer.is_general)
        if not answer.is_final:
            self._report_once(held_node, finding)
        return answer

    def ask_before_cordon(self, node: PlannedNode) -> Finding | None:
        """Ask all checks once more, without their waits and timeouts."""
        if self.memory is not None:
            self.memory.require_fresh_read()
        # Slow checks first, so that the others' answers are fresh at the cordon.
        for check in reversed(self._checks):
            finding = check(node).finding
            if finding:
                return finding
        return None

    def _check_memory(self, node: PlannedNode) -> GateAnswer:
        if self.memory is None:
            # The FleetLock server checks the memory before it reserves a slot.
            return OPEN
        finding = self.memory.why_not_to_start(node)
        return GateAnswer(finding, is_final=True) if finding else OPEN

    def run_command_for_node(self, context: NodeContext) -> None:
        wave = self._wave_by_node[context.name]
        variables = {
            **_wave_variables(wave, self.plan),
            GateVariable.NODE: context.name,
            GateVariable.ADDRESS: context.host.endpoint.address,
            GateVariable.RUNNING_VERSION: context.planned.running_version,
            GateVariable.STAGED_VERSION: context.planned.staged_version,
        }
        refused = self._run_command("node", variables)
        if refused:
            raise NotStartedError(finding=refused)

    def find_busy_controller(self, name: str, nodes: Iterable[Node]) -> ControllerMoving | None:
        # Deletions bypass budgets, so no controller opens one.
        if self.plan.policy.drain.disable_eviction:
            return None
        return self.cluster.ask(lambda api: find_busy_controller(api, name, nodes))

    def is_window_closed(self, planned: PlannedNode) -> bool:
        return self._schedule_by_pool[planned.pool].why_closed(self.cluster.clock.now()) is not None

    def _is_stopped(self) -> bool:
        return self.stop.is_due

    def _run_command(
        self, stage: str, variables: Mapping[str, str]
    ) -> findings.CommandRefused | None:
        if self.ports.command is None:
            return None
        environment = {GateVariable.STAGE: stage, GateVariable.RUN: self.plan.plan_id, **variables}
        answer = self.ports.command(environment, self._policy.timeout, self._is_stopped)
        return findings.CommandRefused(answer) if answer else None

    def _check_window(self, node: PlannedNode) -> GateAnswer:
        schedule = self._schedule_by_pool[node.pool]
        if not schedule:
            return OPEN
        now = self.cluster.clock.now()
        finding: Finding | None = schedule.why_closed(now)
        if isinstance(finding, findings.NoWindowAhead):
            return GateAnswer(finding, is_final=True)
        needed_seconds = self._seconds_needed(node)
        if not schedule.fits_ever(now, needed_seconds):
            return GateAnswer(findings.NoWindowFits(Duration(round(needed_seconds))), is_final=True)
        may_wait = self._policy.windows.wait
        opening = schedule.current_opening(now)
        if opening:
            seconds_left = (opening.end - now).total_seconds()
            if seconds_left >= needed_seconds:
                return OPEN
            next_opening = schedule.next_opening_text(now)
            has_next_opening = bool(next_opening)
            may_wait = may_wait and has_next_opening
            finding = findings.WindowTooShort(
                left=Duration(round(seconds_left)),
                needed=Duration(round(needed_seconds)),
                ends_in_freeze=bool(schedule.active_freezes(opening.end)),
                opens=next_opening,
            )
        # Windows of a pool hold its nodes only.
        is_general = may_wait and not schedule.pool_windows
        return GateAnswer(finding, is_final=not may_wait, is_general=is_general)

    def _seconds_needed(self, node: PlannedNode) -> float:
        wave = self._wave_by_node[node.name]
        drain_seconds = wave.estimate.drain
        if node.wait_seconds < self._longest_waits[wave.index]:
            # The wave's drain includes its longest wait for completion, but this node waits less.
            timeout = pools_of(self.plan.policy).rules(node.pool).drain.timeout
            drain_seconds = min(drain_seconds, round(node.wait_seconds + timeout))
        estimate = drain_seconds + wave.estimate.reboot
        return estimate or _ASSUMED_ESTIMATE

    def _check_time_left(self, node: PlannedNode) -> GateAnswer:
        needed = self._seconds_needed(node)
        deadline = self.ports.deadline
        if deadline is None or deadline.remaining >= needed:
            return OPEN
        left = Duration(round(deadline.remaining))
        return GateAnswer(findings.DeadlineTooNear(left, Duration(round(needed))), is_final=True)

    def _check_blocking_pods(self, node: PlannedNode) -> GateAnswer:
        for selector in self._policy.blocking_pods:
            pods = self.cluster.ask(partial(read_node_pods, node=node.name, selector=selector))
            running = tuple(pod.key for pod in pods if not pod.finished)
            if running:
                return GateAnswer(findings.BlockingPods(running, selector))
        return OPEN

    def _check_control_plane(self, node: PlannedNode) -> GateAnswer:
        return self._check_blockers(node, find_control_plane_blockers)

    def _check_stored_data(self, node: PlannedNode) -> GateAnswer:
        return self._check_blockers(node, find_storage_blockers)

    def _check_blockers(
        self, node: PlannedNode, find: Callable[[ClusterApi, str, Policy], Iterable[Blocker]]
    ) -> GateAnswer:
        accepted = {blocker.object for blocker in self.plan.blockers if blocker.node == node.name}
        for blocker in self.cluster.ask(lambda api: find(api, node.name, self.plan.policy)):
            if blocker.object not in accepted:
                return GateAnswer(findings.BlockedNow(blocker.object, blocker.message))
        return OPEN

    def _check_controllers(self, node: PlannedNode) -> GateAnswer:
        has_such_pods = self.cluster.ask(lambda api: has_pods_of_controllers(api, node.name))
        if not has_such_pods:
            # Listing all nodes costs much, and most nodes have no such pods.
            return OPEN
        # `claim` decides between nodes that are only marked.
        nodes = [other for other in self.cluster.ask(read_nodes) if not is_only_marked(other)]
        finding = self.find_busy_controller(node.name, nodes)
        return GateAnswer(finding) if finding else OPEN

    def _check_alerts(self, _node: PlannedNode) -> GateAnswer:
        url = self._policy.alerts.url
        if not url:
            return OPEN
        if self.ports.alerts is None:
            return GateAnswer(findings.AlertsNotAsked(url), is_final=True)
        finding = self._alerts.get()
        return GateAnswer(finding, is_general=finding is not None)

    def _check_health(self, _node: PlannedNode) -> GateAnswer:
        problem = self._object_problem.get() if self._policy.healthy else None
        return GateAnswer(problem, is_general=problem is not None)

    def _start_timeout(self, held_node: str) -> Deadline:
        return self._timeouts.setdefault(held_node, self.cluster.deadline(self._policy.timeout))

    def _reset_timeouts(self, node: PlannedNode, answer: GateAnswer) -> None:
        """A check that is not bounded holds the node, so gates.timeout starts anew."""
        if answer.is_general:
            # Other nodes may not be asked meanwhile.
            self._timeouts.clear()
        else:
            self._timeouts.pop(node.name, None)

    def _end_timeouts(self, node: PlannedNode) -> None:
        self._timeouts.pop(node.name, None)
        self._timeouts.pop(_ANY_NODE, None)

    def _report_once(self, held_node: str, finding: Finding) -> None:
        if self._reported.get(held_node) != finding:
            self._reported[held_node] = finding
            subject = "no node can be rebooted now" if held_node == _ANY_NODE else held_node
            self.report.notice(f"{subject}: {text(finding)}")


def _find_alert_problem(
    source: AlertSource | None,
) -> findings.AlertsFiring | findings.AlertsUnreadable | None:
    if source is None:
        return None
    try:
        firing = source()
    except GateError as error:
        return findings.AlertsUnreadable(error.message)
    return findings.AlertsFiring(firing) if firing else None


def _wave_variables(wave: Wave, plan: RolloutPlan) -> dict[str, str]:
    return {
        GateVariable.WAVE: str(wave.index),
        GateVariable.WAVES: str(plan.last_wave),
        GateVariable.NODES: _node_names(wave),
    }


def _node_names(wave: Wave) -> str:
    names = " ".join(node.name for node in wave.nodes)
    if len(names) <= _LONGEST_VARIABLE:
        return names
    last_space = names.rindex(" ", 0, _LONGEST_VARIABLE)
    return names[:last_space]


def find_control_plane_blockers(api: ClusterApi, name: str, policy: Policy) -> Iterable[Blocker]:
    try:
        node = read_node(api, name)
    except ApiNotFoundError:
        return ()
    if not is_control_plane(node, policy):
        return ()
    nodes = [node for node in read_nodes(api) if is_control_plane(node, policy)]
    pods = [pod for node in nodes for pod in read_node_pods(api, node.name)]
    return ControlPlane.of(nodes, pods, policy, api.server_time()).blockers(name)


def find_storage_blockers(api: ClusterApi, name: str, policy: Policy) -> Iterable[Blocker]:
    """Empty if the storage cannot be read."""
    pods = read_node_pods(api, name)
    osd_namespaces = {pod.namespace for pod in pods if pod.is_osd}
    has_longhorn = any(pod.is_of_longhorn for pod in pods)
    if not osd_namespaces and not has_longhorn:
        return ()
    osds: list[Pod] = []
    for namespace in osd_namespaces:
        osds.extend(read_pods(api, namespace, f"app={OSD_APP}"))
    stored, _unseen = read_stored_data(api, (*pods, *osds))
    away = away_reasons(read_nodes(api), policy, api.server_time())
    return storage_blockers(name, stored, away)
