"""Passes of an operating process, which nobody watches: what may be done now is done, the rest is said and left.

A pass goes on with what one before it was interrupted in, and begins anew. What a person began is
left to persons. Between two passes nobody holds the lock, so that a person may run a rollout. Of
several processes one works, and the others watch its Lease: where it goes unrenewed for its whole
duration, the next one makes its pass at once.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from rollout.cli import failures, wiring
from rollout.cli.settings.reading import Given
from rollout.cli.settings.rules import policy_of
from rollout.cli.settings.schema import StopMode
from rollout.cli.stages import execute, gather, plan, refusals
from rollout.cli.stages.gather import Run, Session, connect
from rollout.cli.stages.observers import RepeatFilter, measured_pass, tell, tell_failed_pass
from rollout.cli.stages.refusals import lock_watch, refuse_beside_living
from rollout.cli.terminal import say, show_lines, warn
from rollout.errors import (
    ApiError,
    BlockedError,
    ExitCode,
    InputError,
    InterruptedRunError,
    LockedError,
    RolloutError,
)
from rollout.execution.base.deadline import Deadline, StopRequest
from rollout.execution.drain.eviction import move_elsewhere
from rollout.execution.gates import Later
from rollout.execution.lease import HolderState, LeaseWatch, read_lease
from rollout.execution.record.memory import change_memory, require_memory
from rollout.execution.record.record import has_begun
from rollout.execution.record.unfinished import Unfinished
from rollout.execution.rollout.continuation import restricted, rules_of
from rollout.model.cluster import Node
from rollout.model.gates import AlertPolicy
from rollout.model.memory import Slip
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy
from rollout.model.progress import RunResult
from rollout.model.timestamps import moment, timestamp
from rollout.planning.eligibility.memory import all_paused, why_aborted
from rollout.planning.eligibility.windows import Schedule
from rollout.planning.plan.finish_by import Finish, finish
from rollout.ports import Clock, ClusterApi
from rollout.report.notifications import slipped
from rollout.report.unfinished import heading, ways_out
from rollout.wording import text

if TYPE_CHECKING:
    from rollout.report.metrics import Metrics

_LOOK_AGAIN = 2.0
_PATIENCE = timedelta(days=1)


@dataclass(slots=True)
class Operation:
    """What outlives a pass, and makes passes.

    `ending` ends the process, `metrics` measure all passes, `watch` knows of the lock what was seen
    before, and `news` is what notifications told. Without `once` pass follows pass, and no later
    pod takes what this one cannot.
    """

    settings: Given
    ending: StopRequest
    metrics: "Metrics | None"
    once: bool = False
    watch: LeaseWatch = field(default_factory=lock_watch)
    news: RepeatFilter = field(default_factory=RepeatFilter)

    def make_pass(self) -> ExitCode:
        """Make one pass.

        Raises what `apply` raises, but for another rollout under way: that is said, and no failure.
        """
        settings, seconds = self.settings, self.settings.operate.active_deadline
        end = Deadline(wiring.system_clock(), seconds) if seconds else None
        stop = StopRequest(end, self.ending, revert=settings.waves.stop is StopMode.REVERT)
        self.news.turn()
        with measured_pass(self.metrics) as measured:
            try:
                # under the rules of today: events may have come into the calendar since the last
                # pass
                session = connect(settings, policy_of(settings))
                own = replace(
                    session, metrics=self.metrics, news=self.news, watch=self.watch, unattended=True
                )
                measured.code = _Pass(self, own, stop).make()
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

    def leave(self, why: str, details: Sequence[str] = ()) -> ExitCode:
        """No node is begun, which is no failure."""
        if self.metrics:
            self.metrics.skip_pass()
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
                try:
                    self.make_pass()
                except BrokenPipeError:
                    raise
                except Exception as error:  # noqa: BLE001 - it is told, and the next pass may well go right
                    failures.report(error, verbose=bool(self.settings.output.verbose))
                self._idle(clock, next_pass)
            undisturbed()
        # again, for an interruption that came first
        undisturbed()
        say("stopped on request: no further pass is made")

    def _idle(self, clock: Clock, until: float) -> None:
        """Wait for the time of the next pass, and for whoever holds the lock then; not for one that is gone."""
        watch, tried = self.watch, self.watch.stale
        api: ClusterApi | None = None
        with suppress(RolloutError):
            # where there is no way to it, the pass has told why
            api = wiring.cluster_api(self.settings)
        while not self.ending.requested:
            with suppress(ApiError):
                if api is not None:
                    watch.look(read_lease(api, self.settings.lock.namespace))
            is_free = watch.state in (HolderState.NOBODY, HolderState.GONE)
            if (is_free and clock.monotonic() >= until) or watch.stale not in ("", tried):
                return
            clock.wait(self.ending, _LOOK_AGAIN)


@dataclass(frozen=True, slots=True)
class _Pass:
    """The stages of a pass, in the order of `make`."""

    operation: Operation
    session: Session
    stop: StopRequest

    def make(self) -> ExitCode:
        session = self.session
        refuse_beside_living(session)
        nodes = gather.read_nodes(session.api)
        if (unfinished := self._unfinished(nodes)) is not None:
            if unfinished.is_garbled:
                # nobody can tell whose it is
                raise BlockedError(heading(unfinished), hint=f"{ways_out(unfinished)}.")
            boots = {node.name: node.boot_id for node in nodes}
            # nodes that were not begun, and that nobody has rebooted since
            waits = any(boots.get(node.name) == node.boot_id for node in unfinished.untouched)
            is_left = unfinished.blocks or waits
            is_unattended = unfinished.record.unattended
            if not is_unattended and is_left and has_begun(unfinished.run, nodes):
                why = (
                    f"{heading(unfinished)}; what a person started is left to people:"
                    f" {ways_out(unfinished)}"
                )
                self._tell_of_waiting(unfinished, why)
                return self._left(why)
            # those that were begun are finished at any time, while gates keep the others back;
            # those wait for theirs
            is_begun = unfinished.blocks and (unfinished.begun or unfinished.unclear)
            if is_unattended and (is_begun or (is_left and not self._reason_to_begin_nothing())):
                run = plan.planned_rest(self._under(rules_of(unfinished)), unfinished)
                hold_to_date(session, run.plan, is_all=False)
                result = self._carried_out(run)
                if not result.complete or self.stop.requested:
                    return self._code(result)
        if why := self._reason_to_begin_nothing():
            return self._left(why)
        run = plan.planned_run(self._under(session.policy))
        hold_to_date(run.session, run.plan)
        refusals.refuse_unfit(run.session, run.plan)
        return self._code(self._carried_out(run))

    def _tell_of_waiting(self, unfinished: Unfinished, why: str) -> None:
        """Notify once of a rollout that a person began a day ago; the memory keeps other passes from doing so again."""
        session = self.session
        run = unfinished.run
        started = moment(unfinished.record.started_at)
        now = session.api.server_time()
        memory = gather.read_memory(session)
        if memory.waited_for == run or now is None or started is None or now - started < _PATIENCE:
            return
        error = BlockedError(f"operate has begun nothing for a day: {why}")
        tell_failed_pass(error, session.settings, self.operation.news)
        with suppress(ApiError):
            change_memory(session.api, session.namespace, partial(replace, waited_for=run))

    def _reason_to_begin_nothing(self) -> str:
        """Why this pass begins no node; empty where it may. Whatever keeps a whole pass back has its place here."""
        memory = gather.read_memory(self.session)
        if metrics := self.session.metrics:
            metrics.observe_memory(memory)
        # A missing right is reported later, together with all other missing rights.
        if not memory.denied:
            require_memory(memory)
        schedule = Schedule.of(self.session.policy.gates.windows)
        now = self.session.api.server_time()
        if pause := all_paused(memory, now):
            return text(pause)
        return schedule.closed(wiring.now()) or why_aborted(memory)

    def _left(self, why: str) -> ExitCode:
        """Begin nothing, having held what that leaves against the date by which all is to be done."""
        if self.session.settings.operate.finish_by:
            try:
                session = self._under(self.session.policy)
                hold_to_date(session, plan.decide(plan.gathered(session)))
            except RolloutError as error:
                say(f"warning: no forecast of when all is done: {error.message}")
        return self.operation.leave(why)

    def _unfinished(self, nodes: Sequence[Node]) -> Unfinished | None:
        """Return what stands on the cluster; of an operating process' rollout, what is left of it under today's rules.

        Those are for the nodes that today's settings mean: none where they mean something that is
        not there.
        """
        session = self.session
        meant = tuple[str, ...]()
        unfinished = gather.find_unfinished_among(session, nodes)
        if unfinished is None or not unfinished.record.unattended:
            return unfinished
        try:
            _, meant = gather.choose(nodes, session.api, session.selection)
        except InputError as error:
            say(f"warning: {error.message}")
        return restricted(unfinished, session.policy, frozenset(meant))

    def _under(self, policy: Policy) -> Session:
        """Return the session by these rules, with their gates, and with what another cluster has proved.

        Nobody is there to see where a record would have it ask.
        """
        session = self.session
        alerts = policy.gates.alerts
        own = alerts if alerts.url == session.settings.alerts.prometheus_url else AlertPolicy()
        proven = gather.with_patience(lambda: gather.proven_elsewhere(session, remembers=True))
        warn(*(proven.problems if proven else ()))
        gates = wiring.gates(session.settings, own, self.stop.end)
        return replace(session, policy=policy, gates=gates, proven=proven)

    def _carried_out(self, run: Run) -> RunResult:
        if self.stop.requested:
            raise InterruptedRunError(f"{self.stop.why}, before anything was started")
        result = execute.carry_out(run, self.stop)
        own = run.targets.own_node
        if own is not None and result.deferred and not self.operation.once:
            # it waits for a pod elsewhere: the one that follows this, once it is evicted as any
            # other is
            try:
                move_elsewhere(run.session.api, own, run.plan.policy.drain, say)
            except RolloutError as error:
                say(
                    f"warning: the pod {own.pod} could not be evicted from {own.name}:"
                    f" {error.message}"
                )
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


def hold_to_date(session: Session, plan: RolloutPlan, *, is_all: bool = True) -> None:
    """Tell that this plan is done too late, unless that was told of this date: the memory keeps that for later passes.

    A plan that is not all there is to do may be late, but does not show that the rest is in time.
    """
    date = moment(written := session.settings.operate.finish_by)
    memory = gather.read_memory(session)
    now = wiring.now()
    # a pause without an end may end at any time
    begin = max(now, (moment(memory.pause.until) if memory.pause else None) or now)
    at = finish(plan, Schedule.of(session.policy.gates.windows), begin) if date else None
    slip: Slip | None = None
    late: float | None = None
    if date and plan.waves and (at is None or at > date):
        before = memory.slip if memory.slip and memory.slip.by == written else None
        slip = Slip(
            written, timestamp(at) if at else "", before.since if before else timestamp(now)
        )
        obstacle = Finish(0, plan, at).obstacle
        say(f"warning: {slip}; {obstacle}")
        if before is None:
            command = "rollout plan" if date <= now else f"rollout plan --finish-by {written}"
            tell(slipped(slip, obstacle, command), session.settings)
        late = (at - date).total_seconds() if at else float("inf")
    elif date and is_all:
        late = 0
    if session.metrics and late is not None:
        session.metrics.observe_lateness(late)
    if memory.slip != slip and (slip or is_all or not date):
        with suppress(ApiError):
            change_memory(session.api, session.namespace, partial(replace, slip=slip))
