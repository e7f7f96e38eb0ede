"""Passes of an operating process, which nobody watches: what may be done now is done, the rest is said and left.

A pass goes on with what one before it was interrupted in, and begins anew. What a person began is left to persons.
Between two passes nobody holds the lock, so that a person may run a rollout. Of several processes one works, and the
others watch its Lease: where it goes unrenewed for its whole duration, the next one makes its pass at once.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from rollout.cli import failures, wiring
from rollout.cli.settings.reading import Given
from rollout.cli.settings.rules import policy_of, selection_of
from rollout.cli.settings.schema import StopMode
from rollout.cli.stages import execute, gather, plan, refusals
from rollout.cli.stages.deadline import hold_to_date
from rollout.cli.stages.evidence import proven_elsewhere
from rollout.cli.stages.lock import beside_living, read_lock
from rollout.cli.stages.metrics import MeasuredPass, Meter
from rollout.cli.stages.notify import News, tell_failed_pass
from rollout.cli.stages.session import Run, Session, connect
from rollout.cli.terminal import say, show, show_lines, width
from rollout.errors import ApiError, BlockedError, ExitCode, InputError, InterruptedRunError, LockedError, RolloutError
from rollout.execution.base.deadline import Deadline
from rollout.execution.base.stop import StopRequest, TimedStop
from rollout.execution.drain.eviction import move_elsewhere
from rollout.execution.gates.policy_gates import Later
from rollout.execution.lease import Holder, LeaseWatch, read_lease
from rollout.execution.record.memory import change_memory
from rollout.execution.record.stored import has_begun
from rollout.execution.record.unfinished import Unfinished
from rollout.execution.rollout.continuation import restricted, rules_of
from rollout.gather.doctor.cluster import clocks_apart
from rollout.model.cluster import Node
from rollout.model.gates import AlertPolicy
from rollout.model.memory import moment
from rollout.model.node_marks import last_result
from rollout.model.plan import ExclusionReason, RolloutPlan
from rollout.model.policy import Policy
from rollout.model.progress import RunResult
from rollout.planning.eligibility.candidates import excluded_by_name
from rollout.planning.eligibility.evidence import Proven
from rollout.planning.eligibility.memory import why_aborted
from rollout.planning.eligibility.schedule import Schedule
from rollout.ports import Clock, ClusterApi
from rollout.report.summary import summary_text, tallied
from rollout.report.unfinished import heading, ways_out

_LOOK_AGAIN, _LOOK_AGAIN_BETWEEN = 0.5, 2.0
# How long a rollout of people is waited for before they are told.
_PATIENCE = timedelta(days=1)


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

    settings: Given
    watch: LeaseWatch
    ending: StopRequest
    meter: Meter
    news: News
    is_standing: bool = False


def make_pass(lasting: Lasting) -> PassEnd:
    """Make one pass.

    Raises what `apply` raises, but for another rollout under way: that is said, and no failure.
    """
    lasting.news.turn()
    with lasting.meter.measured_pass(namespace=lasting.settings.lock.namespace) as measured:
        end = _passed(lasting, measured)
        measured.code = end.code
    return end


def _passed(lasting: Lasting, measured: MeasuredPass) -> PassEnd:
    settings, news = lasting.settings, lasting.news
    deadline = settings.operate.active_deadline
    end = Deadline(wiring.system_clock(), deadline) if deadline else None
    stop = TimedStop(end, lasting.ending, revert=settings.waves.stop is StopMode.REVERT)
    try:
        session = _session(lasting)
        measured.api = session.api
        code = _Pass(session, stop, lasting).make()
    except LockedError as error:
        code = _leave(error.message, lasting, error.details)
    except InterruptedRunError as error:
        code = _leave(error.message, lasting)
        code = ExitCode.INTERRUPTED if stop.asked else code
    except RolloutError as error:
        if news.now is None:
            # a run that was begun has told of it
            tell_failed_pass(error, settings, news)
        raise
    return PassEnd(code, stop.asked)


def _session(lasting: Lasting) -> Session:
    """Connect, under the rules of today: events may have come into the calendar since the last pass."""
    settings = lasting.settings
    session = connect(settings, selection_of(settings), policy_of(settings))
    return replace(session, observers=lasting.meter.observers, news=lasting.news, watch=lasting.watch, operating=True)


def _leave(why: str, lasting: Lasting, details: Sequence[str] = ()) -> ExitCode:
    """No node is begun, which is no failure."""
    lasting.meter.skip_pass()
    if lasting.settings.output.as_json:
        execute.tell_nothing(why)
    else:
        show_lines("\n".join((f"No node is started: {why}.", *details)))
    return ExitCode.OK


@dataclass(frozen=True, slots=True)
class _Pass:
    """The stages of a pass, in the order of `make`."""

    session: Session
    stop: TimedStop
    lasting: Lasting

    def make(self) -> ExitCode:
        self._refuse_beside_others()
        nodes = gather.read_nodes(self.session)
        unfinished = self._unfinished(nodes)
        if unfinished is not None and (why := _left_to_persons(unfinished, nodes)):
            self._tell_of_waiting(unfinished, nodes, why)
            self._look_ahead()
            return _leave(why, self.lasting)
        if unfinished is not None and self._is_to_be_gone_on(unfinished, nodes):
            result = self._carried_out(self._rest(unfinished))
            if not result.complete or self.stop.requested:
                return self._code(result)
        if why := self._reason_to_begin_nothing():
            self._look_ahead()
            return _leave(why, self.lasting)
        return self._code(self._begun_anew())

    def _tell_of_waiting(self, unfinished: Unfinished, nodes: Sequence[Node], why: str) -> None:
        """Notify once it has waited for people for a day; the memory keeps other passes from doing so again."""
        session, run = self.session, unfinished.run
        now, memory = session.api.server_time(), gather.read_memory(session, quiet=True)
        ends = (result["at"] for result in map(last_result, nodes) if result.get("run") == run)
        latest = max(filter(None, map(moment, (unfinished.record.started_at, *ends))), default=None)
        if now is None or latest is None or now - latest < _PATIENCE or memory.waited_for == run:
            return
        error = BlockedError(f"operate has begun nothing for a day: {why}")
        tell_failed_pass(error, session.settings, self.lasting.news)
        with suppress(ApiError):
            change_memory(session.api, session.namespace, partial(replace, waited_for=run))

    def _refuse_beside_others(self) -> None:
        """`LockedError` where somebody holds the lock and renews it, or may still do so at the end of the pass."""
        if self._look() is Holder.UNKNOWN:
            say(f"{self.lasting.watch.holder} holds the lock: watching it for a renewal")
        while (state := self._look()) is Holder.UNKNOWN and not self.stop.requested:
            wiring.system_clock().sleep(_LOOK_AGAIN)
        if state is Holder.UNKNOWN:
            raise LockedError(f"{self.lasting.watch.holder} holds the lock")
        if state is Holder.ALIVE:
            raise beside_living(self.session.api, self.session.namespace)

    def _look(self) -> Holder:
        return self.lasting.watch.look(read_lock(self.session.api, self.session.namespace))

    def _reason_to_begin_nothing(self) -> str:
        """Why this pass begins no node; empty where it may. Whatever keeps a whole pass back has its place here."""
        memory = gather.read_memory(self.session, quiet=True)
        self.lasting.meter.observe_memory(memory)
        if memory.is_newer:
            # it is not written over: what fails tonight would be tried on others in the next night
            raise BlockedError(
                f"{memory.problem}: which versions are held is not known, and no pass begins without that",
                hint="Run that version of rollout, or reset the memory: rollout release --all",
            )
        server_time = self.session.api.server_time
        if memory.pause is not None and not memory.pause.is_over(server_time()):
            return f"all nodes are {memory.pause}"
        schedule = Schedule.of(self.session.policy.gates.windows)
        now = wiring.system_clock().now()
        if schedule and (apart := clocks_apart(now, server_time())):
            say(f"warning: {apart}")
        return schedule.closed(now) or why_aborted(memory)

    def _look_ahead(self) -> None:
        """Forecast what this pass does not begin, for the date by which all is to be done."""
        if not self.lasting.settings.operate.finish_by:
            return
        try:
            session = self._under(self.session.policy)
            gathered = gather.gather(session)
            hold_to_date(session, self.lasting.meter, plan.decide(session, gathered))
        except RolloutError as error:
            say(f"warning: no forecast of when all is done: {error.message}")

    def _unfinished(self, nodes: Sequence[Node]) -> Unfinished | None:
        """Return what stands on the cluster.

        Of an operating process' rollout, what is left of it under today's rules.
        """
        unfinished = gather.find_unfinished_among(self.session, nodes)
        if unfinished is None or not unfinished.record.operating:
            return unfinished
        return restricted(unfinished, self.session.policy, self._meant(nodes))

    def _is_to_be_gone_on(self, unfinished: Unfinished, nodes: Sequence[Node]) -> bool:
        """Nodes that were begun are finished at any time, while gates keep the others back; those wait for theirs."""
        if not unfinished.record.operating:
            return False
        if unfinished.blocks and (unfinished.begun or unfinished.unclear):
            return True
        left = unfinished.blocks or _waiting(unfinished, nodes)
        return bool(left) and not self._reason_to_begin_nothing()

    def _rest(self, unfinished: Unfinished) -> Run:
        run = plan.planned_rest(self._under(rules_of(unfinished)), unfinished)
        hold_to_date(self.session, self.lasting.meter, run.plan, is_all=False)
        self.lasting.meter.observe_hosts(run.targets.observations, among_others=True)
        return run

    def _meant(self, nodes: Sequence[Node]) -> frozenset[str]:
        """Return the nodes that today's settings mean; none where they mean something that is not there."""
        try:
            names = gather.choose(self.session, nodes)
        except InputError as error:
            say(f"warning: {error.message}")
            return frozenset()
        return frozenset(name for name in names if not excluded_by_name(name, self.session.selection))

    def _begun_anew(self) -> RunResult:
        session = self._under(self.session.policy)
        gathered = plan.gather_for_run(session)
        self.lasting.meter.observe(gathered.targets.observations, gathered.snapshot.memory)
        run = plan.planned_run(session, gathered)
        hold_to_date(session, self.lasting.meter, run.plan)
        refusals.refuse_unfit(session, run.plan)
        if session.as_json or run.plan.waves or run.deferred:
            if not session.as_json:
                show(plan.shown(session, gathered, run.plan))
            return self._carried_out(run)
        result = _nothing_to_do(run.plan, run.session.settings.repeated)
        execute.notify_end(run, result, self.stop)
        return result

    def _under(self, policy: Policy) -> Session:
        """Return the session by these rules, with their gates, and with what another cluster has proved.

        Nobody is there to see where a record would have it ask.
        """
        settings, alerts = self.session.settings, policy.gates.alerts
        own = alerts if alerts.url == settings.alerts.prometheus_url else AlertPolicy()
        gates = wiring.gates(settings, own, self.stop.end)
        return replace(self.session, policy=policy, gates=gates, proven=self._proven())

    def _proven(self) -> Proven | None:
        memory = gather.read_memory(self.session, quiet=True)
        proven = gather.with_patience(lambda: proven_elsewhere(self.session, memory, remembers=True))
        for problem in proven.problems if proven else ():
            say(f"warning: {problem}")
        return proven

    def _carried_out(self, run: Run) -> RunResult:
        if self.stop.requested:
            raise InterruptedRunError(f"{self.stop.why}, before anything was started")
        result = execute.carry_out(run, self.stop)
        if result.deferred and self.lasting.is_standing:
            _move_elsewhere(run)
        return result

    def _code(self, result: RunResult) -> ExitCode:
        """Return the code. What was left for another time is no failure: the next pass takes it up."""
        if self.stop.asked and result.not_started:
            return ExitCode.INTERRUPTED
        untaken = [node for node in result.not_started if not isinstance(node.message, Later)]
        missing = len(result.not_done) > len(result.deferred)
        if result.failed or missing or (untaken and not self.stop.requested):
            return ExitCode.PARTIAL
        return ExitCode.OK


def _move_elsewhere(run: Run) -> None:
    """Have the own node wait for a pod elsewhere: the one that follows this, once it is evicted as any other is."""
    own = run.targets.own_node
    if own is None:
        return
    try:
        move_elsewhere(run.session.api, own, run.plan.policy.drain, say)
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


def _nothing_to_do(planned: RolloutPlan, repeated: Callable[[str], str]) -> RunResult:
    """Say so in a line, or name the nodes that cannot be taken."""
    result = RunResult((), excluded=planned.excluded)
    held_back = {reason: number for reason, number in result.left_out.items() if reason != ExclusionReason.NO_UPDATE}
    left_out = f" (left out: {tallied(held_back)})" if held_back else ""
    if result.not_done:
        show(summary_text(result, width=width(), operating=True, repeated=repeated))
    else:
        show_lines(f"Nothing to do: no node waits for a reboot{left_out}.")
    return result


@dataclass(frozen=True, slots=True)
class Loop:
    """Makes passes.

    Signals wish for the end, and interrupt what is done until `undisturbed` is called.
    """

    clock: Clock
    lasting: Lasting
    undisturbed: Callable[[], None]

    def run(self) -> None:
        """Return once a signal asks for it."""
        with suppress(KeyboardInterrupt):
            while not self.lasting.ending.requested:
                began = self.clock.monotonic()
                if self._pass().signalled:
                    break
                self._idle(began + self.lasting.settings.operate.every)
            self.undisturbed()
        # again, for an interruption that came first
        self.undisturbed()
        say("stopped on request: no further pass is made")

    def _pass(self) -> PassEnd:
        """One pass; whatever goes wrong in it is told, and is over with it, unless nobody can be told any more."""
        try:
            return make_pass(self.lasting)
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - the next pass may well go right
            return PassEnd(failures.report(error, verbose=bool(self.lasting.settings.output.verbose)))

    def _idle(self, until: float) -> None:
        """Wait for the time of the next pass, and for whoever holds the lock then; not for one that is gone."""
        watch, ending = self.lasting.watch, self.lasting.ending
        tried, is_said = watch.stale, False
        api = self._api()
        while not ending.requested:
            state = self._look(api)
            is_time = self.clock.monotonic() >= until
            if (is_time and state in (Holder.NOBODY, Holder.GONE)) or watch.stale not in ("", tried):
                return
            if is_time and not is_said:
                say(f"standing by: {watch.holder} holds the lock")
                is_said = True
            self.clock.wait(ending, _LOOK_AGAIN_BETWEEN)

    def _look(self, api: ClusterApi | None) -> Holder:
        """Return what is known of the lock's holder; while the API server is away, as much as before."""
        watch = self.lasting.watch
        with suppress(ApiError):
            if api is not None:
                watch.look(read_lease(api, self.lasting.settings.lock.namespace))
        return watch.state

    def _api(self) -> ClusterApi | None:
        """None where there is no way to it: the pass has told why."""
        with suppress(RolloutError):
            return wiring.cluster_api(self.lasting.settings.cluster)
        return None
