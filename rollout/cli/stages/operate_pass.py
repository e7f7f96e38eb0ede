"""One pass of an operating process, which nobody watches: what may be done now is done, the rest is said and left.

It goes on with what a pass before it was interrupted in, and begins anew. What a person began is left to persons.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from rollout.cli import wiring
from rollout.cli.settings.rules import freezes_of
from rollout.cli.settings.schema import Allow, Settings, StopMode
from rollout.cli.stages import execute, gather, plan, refusals, remainder
from rollout.cli.stages.execute import Run, RunSettings
from rollout.cli.stages.gather import Connections
from rollout.cli.stages.lock import beside_living, read_lock
from rollout.cli.stages.metrics import MeasuredPass, Meter
from rollout.cli.stages.notify import News, tell_failed_pass
from rollout.cli.stages.plan import Intent
from rollout.cli.terminal import say, show, show_lines, width
from rollout.errors import ApiError, BlockedError, ExitCode, InputError, InterruptedRunError, LockedError, RolloutError
from rollout.execution.base.deadline import Deadline
from rollout.execution.base.stop import StopRequest, TimedStop
from rollout.execution.drain.eviction import move_elsewhere
from rollout.execution.gates.gates import Later
from rollout.execution.lease import Holder, LeaseWatch
from rollout.execution.record.memory import change_memory
from rollout.execution.record.stored import has_begun
from rollout.execution.record.unfinished import Unfinished
from rollout.execution.rollout.continuation import restricted, rules_of
from rollout.gather.doctor.cluster import clocks_apart
from rollout.model.cluster import Node
from rollout.model.gates import AlertPolicy
from rollout.model.memory import moment
from rollout.model.node_marks import last_result
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy, Selection
from rollout.model.progress import RunResult
from rollout.planning.eligibility import excluded_by_name
from rollout.planning.memory import why_aborted
from rollout.planning.schedule import Schedule
from rollout.report.summary import summary_text, tallied
from rollout.report.unfinished import heading, ways_out

_LOOK_AGAIN = 0.5
# How long a rollout of people is waited for before they are told.
_PATIENCE = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class PassSettings:
    """All that a pass goes by: the settings, and the nodes and rules that they mean."""

    settings: Settings
    selection: Selection
    policy: Policy

    def of_today(self) -> "PassSettings":
        """The same with the calendar as it is now: events may have come since the last pass."""
        if self.settings.gates.calendar is None:
            return self
        gates = self.policy.gates
        windows = replace(gates.windows, freezes=freezes_of(self.settings))
        return replace(self, policy=replace(self.policy, gates=replace(gates, windows=windows)))

    @property
    def namespace(self) -> str:
        """Where lock and record stand."""
        return self.settings.lock.namespace

    @property
    def as_json(self) -> bool:
        """Whether programs read it."""
        return self.settings.output.as_json

    @property
    def cluster_name(self) -> str:
        """What notifications call the cluster while nothing is known of it."""
        return self.settings.cluster.name or self.settings.cluster.context


@dataclass(frozen=True, slots=True)
class PassEnd:
    """What came of a pass, and whether a signal has asked the process to end."""

    code: ExitCode
    signalled: bool = False


@dataclass(frozen=True, slots=True)
class Lasting:
    """What outlives a pass.

    `watch` knows of the lock what was seen before, `ending` ends the process, `meter` measures all passes, and `news`
    is what notifications told. `is_standing`: pass follows pass, and no later pod takes what this one cannot.
    """

    watch: LeaseWatch
    ending: StopRequest
    meter: Meter
    news: News
    is_standing: bool = False


def make_pass(settings: PassSettings, lasting: Lasting) -> PassEnd:
    """Make one pass.

    Raises what `apply` raises, but for another rollout under way: that is said, and no failure.
    """
    lasting.news.turn()
    with lasting.meter.measured_pass(namespace=settings.namespace) as measured:
        end = _passed(settings, lasting, measured)
        measured.code = end.code
    return end


def _passed(settings: PassSettings, lasting: Lasting, measured: MeasuredPass) -> PassEnd:
    deadline = settings.settings.operate.active_deadline
    end = Deadline(wiring.system_clock(), deadline) if deadline else None
    stop = TimedStop(end, lasting.ending, revert=settings.settings.waves.stop is StopMode.REVERT)
    meter, news = lasting.meter, lasting.news
    try:
        connections = gather.connect(settings.settings, settings.selection)
        measured.api = connections.api
        code = _Pass(settings.of_today(), connections, stop, lasting).make()
    except LockedError as error:
        code = _leave(error.message, meter, error.details, as_json=settings.as_json)
    except InterruptedRunError as error:
        code = _leave(error.message, meter, as_json=settings.as_json)
        code = ExitCode.INTERRUPTED if stop.asked else code
    except RolloutError as error:
        if news.now is None:
            # a run that was begun has told of it
            tell_failed_pass(error, settings.settings.notify, settings.cluster_name, news)
        raise
    return PassEnd(code, stop.asked)


def _leave(why: str, meter: Meter, details: Sequence[str] = (), *, as_json: bool) -> ExitCode:
    """No node is begun, which is no failure."""
    meter.skip_pass()
    execute.tell_nothing(why) if as_json else show_lines("\n".join((f"No node is started: {why}.", *details)))
    return ExitCode.OK


@dataclass(frozen=True, slots=True)
class _Pass:
    """The stages of a pass, in the order of `make`."""

    settings: PassSettings
    connections: Connections
    stop: TimedStop
    lasting: Lasting

    def make(self) -> ExitCode:
        self._refuse_beside_others()
        nodes = gather.read_nodes(self.connections)
        unfinished = self._unfinished(nodes)
        if unfinished is not None and (why := _left_to_persons(unfinished, nodes)):
            self._tell_of_waiting(unfinished, nodes, why)
            return self._leave(why)
        if unfinished is not None and self._is_to_be_gone_on(unfinished, nodes):
            result = self._carried_out(self._rest(unfinished))
            if not result.complete or self.stop.requested:
                return self._code(result)
        if why := self._reason_to_begin_nothing():
            return self._leave(why)
        return self._code(self._begun_anew())

    def _leave(self, why: str) -> ExitCode:
        return _leave(why, self.lasting.meter, as_json=self.settings.as_json)

    def _tell_of_waiting(self, unfinished: Unfinished, nodes: Sequence[Node], why: str) -> None:
        """Notify once it has waited for people for a day; the memory keeps other passes from doing so again."""
        settings, api, run = self.settings, self.connections.api, unfinished.run
        now, memory = api.server_time(), gather.read_memory(self.connections, settings.namespace, quiet=True)
        ends = (result["at"] for result in map(last_result, nodes) if result.get("run") == run)
        latest = max(filter(None, map(moment, (unfinished.record.started_at, *ends))), default=None)
        if now is None or latest is None or now - latest < _PATIENCE or memory.waited_for == run:
            return
        error = BlockedError(f"operate has begun nothing for a day: {why}")
        tell_failed_pass(error, settings.settings.notify, settings.cluster_name, self.lasting.news)
        with suppress(ApiError):
            change_memory(api, settings.namespace, partial(replace, waited_for=run))

    def _refuse_beside_others(self) -> None:
        """`LockedError` where somebody holds the lock and renews it, or may still do so at the end of the pass."""
        if self._look() is Holder.UNKNOWN:
            say(f"{self.lasting.watch.holder} holds the lock: watching it for a renewal")
        while (state := self._look()) is Holder.UNKNOWN and not self.stop.requested:
            wiring.system_clock().sleep(_LOOK_AGAIN)
        if state is Holder.UNKNOWN:
            raise LockedError(f"{self.lasting.watch.holder} holds the lock")
        if state is Holder.ALIVE:
            raise beside_living(self.connections.api, self.settings.namespace)

    def _look(self) -> Holder:
        return self.lasting.watch.look(read_lock(self.connections.api, self.settings.namespace))

    def _reason_to_begin_nothing(self) -> str:
        """Why this pass begins no node; empty where it may. Whatever keeps a whole pass back has its place here."""
        memory = gather.read_memory(self.connections, self.settings.namespace, quiet=True)
        self.lasting.meter.observe_memory(memory)
        if memory.is_newer:
            # it is not written over: what fails tonight would be tried on others in the next night
            raise BlockedError(
                f"{memory.problem}: which versions are held is not known, and no pass begins without that",
                hint="Run that version of rollout, or reset the memory: rollout release --all",
            )
        if memory.pause is not None and not memory.pause.is_over(self.connections.api.server_time()):
            return f"all nodes are {memory.pause}"
        schedule = Schedule.of(self.settings.policy.gates.windows)
        now = wiring.system_clock().now()
        if schedule and (apart := clocks_apart(now, self.connections.api.server_time())):
            say(f"warning: {apart}")
        return schedule.closed(now) or why_aborted(memory)

    def _unfinished(self, nodes: Sequence[Node]) -> Unfinished | None:
        """What stands on the cluster; of an operating process' rollout, what is left of it under today's rules."""
        unfinished = gather.find_unfinished_among(self.connections, nodes, self.settings.namespace)
        if unfinished is None or not unfinished.record.operating:
            return unfinished
        return restricted(unfinished, self.settings.policy, self._meant(nodes))

    def _is_to_be_gone_on(self, unfinished: Unfinished, nodes: Sequence[Node]) -> bool:
        """Nodes that were begun are finished at any time, while gates keep the others back; those wait for theirs."""
        if not unfinished.record.operating:
            return False
        if unfinished.blocks and (unfinished.begun or unfinished.unclear):
            return True
        left = unfinished.blocks or _waiting(unfinished, nodes)
        return bool(left) and not self._reason_to_begin_nothing()

    def _rest(self, unfinished: Unfinished) -> Run:
        settings = self._run_settings(rules_of(unfinished))
        run = remainder.planned_rest(unfinished, self.connections, settings)
        self.lasting.meter.observe_hosts(run.targets.observations, among_others=True)
        return run

    def _meant(self, nodes: Sequence[Node]) -> frozenset[str]:
        """The nodes that today's settings mean; none where they mean something that is not there."""
        selection = self.settings.selection
        try:
            names = gather.choose(nodes, self.connections, selection)
        except InputError as error:
            say(f"warning: {error.message}")
            return frozenset()
        return frozenset(name for name in names if not excluded_by_name(name, selection))

    def _begun_anew(self) -> RunResult:
        settings = self.settings
        intent = Intent(settings.selection, settings.policy, unattended=True)
        gathered = plan.gathered_by(self.connections, intent, settings.settings)
        self.lasting.meter.observe(gathered.targets.observations, gathered.snapshot.memory)
        run = plan.planned_run(intent, gathered, self._run_settings(settings.policy), quiet=True)
        nodes = settings.settings.nodes
        if nodes.require_all:
            refusals.refuse_excluded(run.plan)
        refusals.refuse_blocked(run.plan, only_rivals=Allow.BLOCKED in nodes.allow)
        if settings.as_json or run.plan.waves or run.deferred:
            if not settings.as_json:
                show(plan.shown(run.plan, gathered.snapshot, settings.settings.cluster, width()))
            return self._carried_out(run)
        result = _nothing_to_do(run.plan)
        execute.notify_end(run, result, self.stop)
        return result

    def _run_settings(self, policy: Policy) -> RunSettings:
        settings, lasting = self.settings.settings, self.lasting
        # an unattended pass has no reader to show where a record would have it ask
        alerts = policy.gates.alerts if policy.gates.alerts.url == settings.alerts.prometheus_url else AlertPolicy()
        return RunSettings(
            settings,
            wiring.gates(settings, alerts, self.stop.end),
            lasting.meter.observers,
            lasting.news,
            operating=True,
            watch=lasting.watch,
        )

    def _carried_out(self, run: Run) -> RunResult:
        if self.stop.requested:
            raise InterruptedRunError(f"{self.stop.why}, before anything was started")
        result = execute.carry_out(run, self.stop)
        if result.deferred and self.lasting.is_standing:
            _move_elsewhere(run)
        return result

    def _code(self, result: RunResult) -> ExitCode:
        """What was left for another time is no failure: the next pass takes it up."""
        if self.stop.asked and result.not_started:
            return ExitCode.INTERRUPTED
        untaken = [node for node in result.not_started if not isinstance(node.message, Later)]
        missing = len(result.not_done) > len(result.deferred)
        if result.failed or missing or (untaken and not self.stop.requested):
            return ExitCode.PARTIAL
        return ExitCode.OK


def _move_elsewhere(run: Run) -> None:
    """The own node waits for a pod elsewhere: the one that follows this, once it is evicted as any other is."""
    own = run.targets.own_node
    if own is None:
        return
    try:
        move_elsewhere(run.connections.api, own, run.plan.policy.drain, say)
    except RolloutError as error:
        say(f"warning: the pod {own.pod} could not be evicted from {own.name}: {error.message}")


def _left_to_persons(unfinished: Unfinished, nodes: Sequence[Node]) -> str:
    """Why this is not gone on with, nor anything begun beside it; empty where an operating process may act.

    `BlockedError` for a record that is not understood: nobody can tell whose it is.
    """
    if unfinished.is_garbled:
        raise BlockedError(heading(unfinished), hint=f"{ways_out(unfinished)}.")
    is_left = unfinished.blocks or _waiting(unfinished, nodes)
    if unfinished.record.operating or not is_left or not has_begun(unfinished.run, nodes):
        return ""
    return f"{heading(unfinished)}; what a person started is left to people: {ways_out(unfinished)}"


def _waiting(unfinished: Unfinished, nodes: Sequence[Node]) -> tuple[str, ...]:
    """Its nodes that were not begun, and that nobody has rebooted since."""
    boots = {node.name: node.boot_id for node in nodes}
    return tuple(node.name for node in unfinished.untouched if boots.get(node.name) == node.boot_id)


def _nothing_to_do(planned: RolloutPlan) -> RunResult:
    """Say so in a line, and name the nodes that nobody could take."""
    result = RunResult((), excluded=planned.excluded)
    left_out = f" (left out: {tallied(result.left_out)})" if result.left_out else ""
    show_lines(f"Nothing to do: no node waits for a reboot{left_out}.")
    if result.not_done:
        show(summary_text(result, width=width(), operating=True))
    return result
