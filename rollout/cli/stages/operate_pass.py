from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from rollout.cli import gate_wiring, wiring
from rollout.cli.stages import execute, refusals, screens
from rollout.cli.stages.cluster import (
    Connections,
    read_cluster,
    read_memory,
    read_nodes,
    with_retries,
)
from rollout.cli.stages.evidence import read_and_remember_proven
from rollout.cli.stages.forecast import forecast_and_report_lateness
from rollout.cli.stages.hosts import ask_hosts
from rollout.cli.stages.observers import notify_of_failed_pass
from rollout.cli.stages.prepare import PreparedRun, inputs_of, make_plan, prepare_fresh
from rollout.cli.stages.resumption import prepare_resumption
from rollout.cli.stages.rollout_spec import RolloutSpec, Unattended
from rollout.cli.stages.selection import select
from rollout.cli.stages.unfinished import find_unfinished_among
from rollout.cli.terminal import say, show, warn
from rollout.errors import (
    ApiError,
    BlockedError,
    ExitCode,
    InputError,
    InterruptedRunError,
    RolloutError,
)
from rollout.execution.base.deadline import GracefulStop
from rollout.execution.base.gate_ports import GatePorts
from rollout.execution.drain.eviction import move_elsewhere
from rollout.execution.record.memory import change_memory, require_readable_memory
from rollout.execution.record.record import may_have_begun
from rollout.execution.record.unfinished import Unfinished
from rollout.execution.rollout.continuation import restrict_rules, rules_of
from rollout.model.cluster import Node
from rollout.model.gates import AlertPolicy
from rollout.model.own_node import OwnNode
from rollout.model.plan import ExclusionReason, RolloutPlan
from rollout.model.policy import DrainPolicy, Policy
from rollout.model.progress import RunResult
from rollout.model.timestamps import parse_timestamp
from rollout.planning.eligibility.evidence import ProvenVersions
from rollout.planning.eligibility.memory import why_aborted, why_all_paused
from rollout.planning.eligibility.windows import Schedule
from rollout.report.unfinished import commands_clause, is_of_fleetlock, unfinished_heading
from rollout.wording import text

if TYPE_CHECKING:
    from rollout.cli.stages.operate import Operation

_NOTIFY_OF_WAITING_AFTER = timedelta(days=1)


class _Course(Enum):
    RESUME = auto()
    LEAVE_TO_PERSON = auto()
    # Of nodes of a FleetLock server or an aborted rollout, which have no record.
    AWAIT_RETURN = auto()
    # By a new rollout, if nodes may start.
    REPLACE = auto()


class Pass(Struct, frozen=True):
    """Resumes operate's unfinished rollout, then starts a new one.

    Leaves rollouts of people and FleetLock servers to them. If no node may start now, the pass is
    skipped, after a forecast.
    """

    operation: "Operation"
    connections: Connections
    spec: RolloutSpec
    stop: GracefulStop

    def run(self) -> ExitCode:
        api = self.connections.api
        nodes = read_nodes(api)
        unfinished = find_unfinished_among(api, self.spec.namespace, nodes)
        if unfinished:
            unfinished = self._with_stricter_rules(unfinished, nodes)
            course = self._choose_course(unfinished, nodes)
            if course is _Course.LEAVE_TO_PERSON:
                why = "someone started it with apply, so operate does not continue it"
                return self._skip_for(unfinished, why)
            if course is _Course.AWAIT_RETURN:
                why = "operate takes on no nodes until these are returned to service"
                return self._skip_for(unfinished, why)
            if course is _Course.RESUME:
                result = self._resume_rollout(unfinished)
                if not result.complete or self.stop.is_due:
                    return self._exit_code(result)
            # REPLACE needs nothing here: the new rollout takes over the remaining nodes.
        # Asked again, because a resumed rollout may have taken hours.
        why_none_may_start = self._why_none_may_start()
        if why_none_may_start is not None:
            return self._forecast_and_skip(why_none_may_start)
        return self._exit_code(self._start_rollout())

    def _choose_course(self, unfinished: Unfinished, nodes: Sequence[Node]) -> _Course:
        """Raise `BlockedError` if a needed record, which has the plan, is garbled or lost."""
        has_work = unfinished.blocks_others or _has_waiting_nodes(unfinished, nodes)
        if not has_work:
            return _Course.REPLACE
        has_no_record = is_of_fleetlock(unfinished) or unfinished.is_aborted
        if has_no_record:
            return _Course.AWAIT_RETURN
        if unfinished.record.problem:
            raise BlockedError(
                unfinished_heading(unfinished), hint=f"{commands_clause(unfinished)}."
            )
        # Only a person starts a rollback, whatever the record says.
        is_own = unfinished.record.unattended and not rules_of(unfinished).rollback
        if not is_own:
            may_have_started = may_have_begun(unfinished.run_id, nodes)
            return _Course.LEAVE_TO_PERSON if may_have_started else _Course.REPLACE
        # `unclear` nodes have marks that are not understood.
        has_started_nodes = unfinished.in_flight or unfinished.unclear
        # Started nodes are finished even outside of windows.
        may_continue = has_started_nodes or self._why_none_may_start() is None
        return _Course.RESUME if may_continue else _Course.REPLACE

    def _skip_for(self, unfinished: Unfinished, why: str) -> ExitCode:
        reason = f"{unfinished_heading(unfinished)}; {why}: {commands_clause(unfinished)}"
        self._notify_of_waiting(unfinished, reason)
        return self._forecast_and_skip(reason)

    def _resume_rollout(self, unfinished: Unfinished) -> RunResult:
        policy = rules_of(unfinished)
        spec = replace(self.spec, policy=policy, origin=Unattended(is_resumption=True))
        proven = self._read_and_remember_proven()
        gates = self._connect_gates(policy)
        run = prepare_resumption(
            self.connections, spec, unfinished, metrics=self.operation.metrics, proven=proven
        )
        # Later passes start the other nodes in today's windows.
        self._forecast_end(run.plan, self.spec.policy, covers_all=False)
        return self._execute(run, gates)

    def _start_rollout(self) -> RunResult:
        spec = self.spec
        proven = self._read_and_remember_proven()
        gates = self._connect_gates(spec.policy)
        fresh = prepare_fresh(
            self.connections,
            spec,
            self.operation.metrics,
            # A person who stops a rollout does not stop operate; pauses and abort do.
            may_replace_stopped=True,
            proven=proven,
        )
        run = fresh.prepared
        if run.has_something_to_do and not spec.settings.output.as_json:
            place = wiring.cluster_place(spec.settings, self.connections.api)
            show(screens.new_run_text(run, fresh.snapshot, place))
        self._forecast_end(run.plan, spec.policy)
        refusals.refuse_blocked(run.plan, spec.settings.nodes.allow)
        return self._execute(run, gates)

    def _notify_of_waiting(self, unfinished: Unfinished, reason: str) -> None:
        """Notify once, after a day, that a person's rollout holds up operate."""
        api = self.connections.api
        started = parse_timestamp(unfinished.record.started_at)
        now = api.server_time()
        memory = read_memory(api, self.spec.namespace)
        has_notified = memory.waited_for == unfinished.run_id
        if has_notified:
            return
        if now is None or started is None or now - started < _NOTIFY_OF_WAITING_AFTER:
            return
        error = BlockedError(f"operate has started no rollout for a day: {reason}")
        notify_of_failed_pass(error, self.spec.settings, self.operation.repeats)
        remember = partial(replace, waited_for=unfinished.run_id)
        with suppress(ApiError):
            change_memory(api, self.spec.namespace, remember)

    def _why_none_may_start(self) -> str | None:
        """Reads the memory for the metrics, too. Raises `BlockedError` if it cannot be read."""
        api = self.connections.api
        memory = read_memory(api, self.spec.namespace)
        if self.operation.metrics:
            self.operation.metrics.observe_memory(memory)
        # `prepare_fresh` reports all missing rights.
        if not memory.denied:
            require_readable_memory(memory)
        schedule = Schedule.of(self.spec.policy.gates.windows)
        finding = why_all_paused(memory, api.server_time()) or schedule.why_closed(wiring.now())
        if finding is not None:
            return text(finding)
        return why_aborted(memory) or None

    def _forecast_and_skip(self, reason: str) -> ExitCode:
        """With a deadline, plan anyway, to tell whether nodes will be late."""
        spec = self.spec
        if spec.settings.operate.finish_by:
            try:
                proven = self._read_and_remember_proven()
                snapshot = read_cluster(
                    self.connections.api,
                    spec.namespace,
                    with_jobs=spec.policy.drain.completion.is_used,
                )
                if not snapshot.memory.denied:
                    require_readable_memory(snapshot.memory)
                targets = ask_hosts(self.connections, spec, snapshot.nodes)
                plan = make_plan(inputs_of(spec, snapshot, targets, proven))
                self._forecast_end(plan, spec.policy)
            except RolloutError as error:
                say(f"warning: cannot forecast when all nodes will be done: {error.message}")
        return self.operation.skip_pass(reason)

    def _with_stricter_rules(self, unfinished: Unfinished, nodes: Sequence[Node]) -> Unfinished:
        """Apply the stricter of the rollout's and today's settings.

        If today's settings name a missing node, no more nodes are started.
        """
        if not unfinished.record.unattended:
            return unfinished
        # Started nodes are finished anyway.
        names: Sequence[str] = ()
        try:
            names = select(nodes, self.connections.api, self.spec.selection).names
        except InputError as error:
            say(f"warning: {error.message}")
        return restrict_rules(unfinished, self.spec.policy, frozenset(names))

    def _read_and_remember_proven(self) -> ProvenVersions | None:
        proven = with_retries(read_and_remember_proven, self.connections.api, self.spec.settings)
        if proven is not None:
            warn(*proven.problems)
        return proven

    def _connect_gates(self, policy: Policy) -> GatePorts:
        """Connect to the settings' Prometheus, never to one of a record.

        If a record's policy names another, `PolicyGates` starts no node.
        """
        settings = self.spec.settings
        alerts = policy.gates.alerts
        is_prometheus_of_settings = alerts.url == settings.alerts.prometheus_url
        if not is_prometheus_of_settings:
            alerts = AlertPolicy()
        return gate_wiring.gate_ports(settings, alerts, self.stop.deadline)

    def _execute(self, run: PreparedRun, gates: GatePorts) -> RunResult:
        if self.stop.is_due:
            raise InterruptedRunError(f"{text(self.stop.reason)}, before anything was started")
        operation = self.operation
        ready_run = execute.ReadyRun(
            run,
            self.connections,
            self.stop,
            gates,
            watch=operation.watch,
            metrics=operation.metrics,
            repeats=operation.repeats,
        )
        result = execute.run_and_show(ready_run)
        own_node = run.inputs.own_node
        # From another node, the next pass can reboot this process's node.
        if own_node is not None and result.deferred and not operation.once:
            self._move_own_pod(own_node, run.plan.policy.drain)
        return result

    def _move_own_pod(self, own_node: OwnNode, drain: DrainPolicy) -> None:
        try:
            move_elsewhere(self.connections.api, own_node, drain, say)
        except RolloutError as error:
            pod = f"the pod {own_node.pod} could not be evicted from {own_node.name}"
            say(f"warning: {pod}: {error.message}")

    def _exit_code(self, result: RunResult) -> ExitCode:
        if self.stop.is_requested and result.not_started:
            return ExitCode.INTERRUPTED
        are_all_deferred = all(node.reason is ExclusionReason.DEFERRED for node in result.not_done)
        if result.failed or not are_all_deferred:
            return ExitCode.PARTIAL
        is_rest_for_later = all(node.is_for_later for node in result.not_started)
        may_leave_rest = is_rest_for_later or self.stop.is_past_deadline
        return ExitCode.OK if may_leave_rest else ExitCode.PARTIAL

    def _forecast_end(self, plan: RolloutPlan, policy: Policy, *, covers_all: bool = True) -> None:
        seconds_late = forecast_and_report_lateness(
            self.connections.api, self.spec.settings, plan, policy, covers_all=covers_all
        )
        if self.operation.metrics and seconds_late is not None:
            self.operation.metrics.observe_lateness(seconds_late)


def _has_waiting_nodes(unfinished: Unfinished, nodes: Sequence[Node]) -> bool:
    """Whether an unstarted node is still in the boot that was planned."""
    boot_ids = {node.name: node.boot_id for node in nodes}
    untouched = unfinished.untouched_nodes
    return any(boot_ids.get(planned.name) == planned.boot_id for planned in untouched)
