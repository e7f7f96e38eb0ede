"""Passes of an operating process, which nobody watches: what may be done now is done, the rest is said and left.

A pass goes on with what one before it was interrupted in, and begins anew. What a person began is left to persons.
Between two passes nobody holds the lock, so that a person may run a rollout. Of several processes one works, and the
others watch its Lease: where it goes unrenewed for its whole duration, the next one makes its pass at once.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from rollout.cli import failures, wiring
from rollout.cli.settings.reading import Given
from rollout.cli.settings.rules import policy_of, selection_of
from rollout.cli.settings.schema import StopMode
from rollout.cli.stages import execute, gather, plan, refusals
from rollout.cli.stages.deadline import hold_to_date
from rollout.cli.stages.evidence import proven_elsewhere
from rollout.cli.stages.lock import lock_watch, refuse_beside_living
from rollout.cli.stages.metrics import Meter
from rollout.cli.stages.notify import News, tell_failed_pass
from rollout.cli.stages.session import Run, Session, connect
from rollout.cli.terminal import say, show, show_lines
from rollout.errors import ApiError, BlockedError, ExitCode, InputError, InterruptedRunError, LockedError, RolloutError
from rollout.execution.base.deadline import Deadline
from rollout.execution.base.stop import StopRequest, TimedStop
from rollout.execution.drain.eviction import move_elsewhere
from rollout.execution.gates.policy_gates import Later
from rollout.execution.lease import Holder, LeaseWatch, read_lease
from rollout.execution.record.memory import change_memory
from rollout.execution.record.record import has_begun
from rollout.execution.record.unfinished import Unfinished
from rollout.execution.rollout.continuation import restricted, rules_of
from rollout.gather.doctor.cluster import clocks_apart
from rollout.model.cluster import Node
from rollout.model.gates import AlertPolicy
from rollout.model.memory import moment
from rollout.model.policy import Policy
from rollout.model.progress import RunResult
from rollout.planning.eligibility.candidates import excluded_by_name
from rollout.planning.eligibility.memory import why_aborted
from rollout.planning.eligibility.schedule import Schedule
from rollout.ports import Clock, ClusterApi
from rollout.report.unfinished import heading, ways_out

_LOOK_AGAIN = 2.0
# How long a rollout of people is waited for before they are told.
_PATIENCE = timedelta(days=1)


@dataclass(slots=True)
class Operation:
    """What outlives a pass, and makes passes.

    `ending` ends the process, `meter` measures all passes, `watch` knows of the lock what was seen before, and `news`
    is what notifications told. `is_standing`: pass follows pass, and no later pod takes what this one cannot.
    """

    settings: Given
    ending: StopRequest
    meter: Meter
    is_standing: bool = False
    watch: LeaseWatch = field(default_factory=lock_watch)
    news: News = field(default_factory=News)

    def make_pass(self) -> ExitCode:
        """Make one pass.

        Raises what `apply` raises, but for another rollout under way: that is said, and no failure.
        """
        settings, seconds = self.settings, self.settings.operate.active_deadline
        end = Deadline(wiring.system_clock(), seconds) if seconds else None
        stop = TimedStop(end, self.ending, revert=settings.waves.stop is StopMode.REVERT)
        self.news.turn()
        with self.meter.measured_pass() as measured:
            try:
                measured.code = _Pass(self, self._session(), stop).make()
            except LockedError as error:
                measured.code = self.leave(error.message, error.details)
            except InterruptedRunError as error:
                code = self.leave(error.message)
                measured.code = ExitCode.INTERRUPTED if stop.asked else code
            except RolloutError as error:
                if self.news.now is None:
                    # a run that was begun has told of it
                    tell_failed_pass(error, settings, self.news)
                raise
            finally:
                if stop.asked:
                    self.ending.request()
        return measured.code

    def _session(self) -> Session:
        """Connect, under the rules of today: events may have come into the calendar since the last pass."""
        session = connect(self.settings, selection_of(self.settings), policy_of(self.settings))
        observers = self.meter.observers
        return replace(session, observers=observers, news=self.news, watch=self.watch, operating=True)

    def leave(self, why: str, details: Sequence[str] = ()) -> ExitCode:
        """No node is begun, which is no failure."""
        self.meter.skip_pass()
        if self.settings.output.as_json:
            execute.tell_nothing(why)
        else:
            show_lines("\n".join((f"No node is started: {why}.", *details)))
        return ExitCode.OK

    def make_passes(self, undisturbed: Callable[[], None]) -> None:
        """Make pass after pass, until a signal asks for the end; it interrupts no more once `undisturbed` is called."""
        clock = wiring.system_clock()
        with suppress(KeyboardInterrupt):
            while not self.ending.requested:
                next_pass = clock.monotonic() + self.settings.operate.every
                self._try_pass()
                self._idle(clock, next_pass)
            undisturbed()
        # again, for an interruption that came first
        undisturbed()
        say("stopped on request: no further pass is made")

    def _try_pass(self) -> None:
        """Whatever goes wrong in a pass is told, and is over with it, unless nobody can be told any more."""
        try:
            self.make_pass()
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - the next pass may well go right
            failures.report(error, verbose=bool(self.settings.output.verbose))

    def _idle(self, clock: Clock, until: float) -> None:
        """Wait for the time of the next pass, and for whoever holds the lock then; not for one that is gone."""
        watch, tried, is_said = self.watch, self.watch.stale, False
        api: ClusterApi | None = None
        with suppress(RolloutError):
            # where there is no way to it, the pass has told why
            api = wiring.cluster_api(self.settings.cluster)
        while not self.ending.requested:
            with suppress(ApiError):
                if api is not None:
                    watch.look(read_lease(api, self.settings.lock.namespace))
            is_time = clock.monotonic() >= until
            if (is_time and watch.state in (Holder.NOBODY, Holder.GONE)) or watch.stale not in ("", tried):
                return
            if is_time and not is_said:
                say(f"standing by: {watch.holder} holds the lock")
                is_said = True
            clock.wait(self.ending, _LOOK_AGAIN)


@dataclass(frozen=True, slots=True)
class _Pass:
    """The stages of a pass, in the order of `make`."""

    operation: Operation
    session: Session
    stop: TimedStop

    def make(self) -> ExitCode:
        session = self.session
        refuse_beside_living(session.api, session.namespace, watch=self.operation.watch)
        nodes = gather.read_nodes(session)
        unfinished = self._unfinished(nodes)
        if unfinished is not None and (why := _left_to_persons(unfinished, nodes)):
            self._tell_of_waiting(unfinished, why)
            return self._left(why)
        if unfinished is not None and self._is_to_be_gone_on(unfinished, nodes):
            result = self._carried_out(self._rest(unfinished))
            if not result.complete or self.stop.requested:
                return self._code(result)
        if why := self._reason_to_begin_nothing():
            return self._left(why)
        return self._code(self._carried_out(self._begun_anew()))

    def _tell_of_waiting(self, unfinished: Unfinished, why: str) -> None:
        """Notify once of one that was started a day ago; the memory keeps other passes from doing so again."""
        session, run = self.session, unfinished.run
        started, now = moment(unfinished.record.started_at), session.api.server_time()
        memory = gather.read_memory(session, quiet=True)
        if memory.waited_for == run or now is None or started is None or now - started < _PATIENCE:
            return
        tell_failed_pass(
            BlockedError(f"operate has begun nothing for a day: {why}"), session.settings, self.operation.news
        )
        with suppress(ApiError):
            change_memory(session.api, session.namespace, partial(replace, waited_for=run))

    def _reason_to_begin_nothing(self) -> str:
        """Why this pass begins no node; empty where it may. Whatever keeps a whole pass back has its place here."""
        memory = gather.read_memory(self.session, quiet=True)
        self.operation.meter.observe_memory(memory)
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

    def _left(self, why: str) -> ExitCode:
        """Begin nothing, having held what that leaves against the date by which all is to be done."""
        if self.session.settings.operate.finish_by:
            try:
                session = self._under(self.session.policy)
                hold_to_date(session, self.operation.meter, plan.decide(session, gather.gather(session)))
            except RolloutError as error:
                say(f"warning: no forecast of when all is done: {error.message}")
        return self.operation.leave(why)

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
        hold_to_date(self.session, self.operation.meter, run.plan, is_all=False)
        self.operation.meter.observe_hosts(run.targets.observations, among_others=True)
        return run

    def _meant(self, nodes: Sequence[Node]) -> frozenset[str]:
        """Return the nodes that today's settings mean; none where they mean something that is not there."""
        try:
            names = gather.choose(self.session, nodes)
        except InputError as error:
            say(f"warning: {error.message}")
            return frozenset()
        return frozenset(name for name in names if not excluded_by_name(name, self.session.selection))

    def _begun_anew(self) -> Run:
        session = self._under(self.session.policy)
        gathered = plan.gather_for_run(session)
        self.operation.meter.observe_hosts(gathered.targets.observations)
        run = plan.planned_run(session, gathered)
        hold_to_date(session, self.operation.meter, run.plan)
        refusals.refuse_unfit(session, run.plan)
        if not session.as_json and (run.plan.waves or run.deferred):
            show(plan.shown(session, gathered, run.plan))
        return run

    def _under(self, policy: Policy) -> Session:
        """Return the session by these rules, with their gates, and with what another cluster has proved.

        Nobody is there to see where a record would have it ask.
        """
        session, alerts = self.session, policy.gates.alerts
        own = alerts if alerts.url == session.settings.alerts.prometheus_url else AlertPolicy()
        memory = gather.read_memory(session, quiet=True)
        proven = gather.with_patience(lambda: proven_elsewhere(session, memory, remembers=True))
        for problem in proven.problems if proven else ():
            say(f"warning: {problem}")
        gates = wiring.gates(session.settings, own, self.stop.end)
        return replace(session, policy=policy, gates=gates, proven=proven)

    def _carried_out(self, run: Run) -> RunResult:
        if self.stop.requested:
            raise InterruptedRunError(f"{self.stop.why}, before anything was started")
        result = execute.carry_out(run, self.stop)
        if result.deferred and self.operation.is_standing:
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
