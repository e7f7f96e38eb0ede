"""Runs the unattended passes of operate.

Nobody holds the lock between passes, so that people can run a rollout. Other processes watch the
Lease, and take over if it is not renewed in time.

What a signal or a deadline stops, and what does it:

    signal while nodes are updated   the pass, gracefully: `stopped_by_signals`
                                     and then the process: the `finally` in `run_once`
    signal at another time           the process, by a KeyboardInterrupt: `interrupted_by_signals`
    --active-deadline                only the pass, gracefully: `GracefulStop.deadline`

When a pass starts no rollout, and the exit code of --once:

    another rollout runs or is unfinished      0   skipped, for `LockedError`
    a person's or FleetLock's has nodes left   0   skipped by `_skip_for`
    a pause, a closed window or an abort       0   skipped by `_forecast_and_skip`
    --active-deadline before the start         0   skipped, for `InterruptedRunError`
    a signal before the start                130   the same, or a KeyboardInterrupt
    a garbled record or memory, a blocker,
    a coordinator or the gate command          6   notified, for `BlockedError`
    missing rights, no API server              1   notified, for `ApiError`
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct, field

from rollout.cli import failures, wiring
from rollout.cli.settings.reading import CommandSettings
from rollout.cli.settings.rules import policy_of, selection_of
from rollout.cli.settings.schema import StopMode
from rollout.cli.stages.cluster import connect
from rollout.cli.stages.lock import new_lease_watch, refuse_if_locked
from rollout.cli.stages.metrics import measure_attempt
from rollout.cli.stages.notification_repeats import RepeatFilter
from rollout.cli.stages.rollout_spec import RolloutSpec, Unattended
from rollout.cli.terminal import say, show_lines
from rollout.errors import ApiError, ExitCode, InterruptedRunError, LockedError, RolloutError
from rollout.execution.base.deadline import Deadline, GracefulStop
from rollout.execution.lease import HolderState, LeaseWatch, read_lease
from rollout.ports import Clock, ClusterApi

if TYPE_CHECKING:
    from rollout.report.metrics import Metrics

_POLL_SECONDS = 2.0


class Operation(Struct):
    """The passes of one process.

    A pass starts or resumes a rollout if nodes are pending. If it cannot start nodes now, it is
    skipped.
    """

    settings: CommandSettings
    # A pass's deadline must not end the process.
    process_stop: GracefulStop
    metrics: "Metrics | None"
    # Another process makes the next pass, so this one does not move its pod.
    once: bool = False
    # Keeps the lock's earlier states between passes.
    watch: LeaseWatch = field(default_factory=new_lease_watch)
    repeats: RepeatFilter = field(default_factory=RepeatFilter)

    def run_once(self) -> ExitCode:
        """Return the exit code of --once.

        Raises what `apply` raises, except the errors that only skip the pass.
        """
        settings = self.settings
        seconds = settings.operate.active_deadline
        deadline = Deadline(wiring.system_clock(), seconds) if seconds else None
        stop = GracefulStop(
            deadline, self.process_stop, revert=settings.waves.stop is StopMode.REVERT
        )
        self.repeats.begin_pass()
        with measure_attempt(self.metrics) as measured:
            try:
                # The calendar file may have changed since the last pass.
                policy = policy_of(settings)
                spec = RolloutSpec(settings, selection_of(settings), policy, Unattended())
                connections = connect(settings)
                # Fail early: `Rollout.run` takes the lock later.
                refuse_if_locked(connections.api, spec.namespace, self.watch)
                # Imported late: a pass that ends here does not need it.
                from rollout.cli.stages.operate_pass import Pass

                measured.code = Pass(self, connections, spec, stop).run()
            except LockedError as error:
                measured.code = self.skip_pass(error.message, error.details)
            except InterruptedRunError as error:
                measured.code = self.skip_pass(error.message)
                was_stopped_by_signal = stop.is_requested
                # A stop by the deadline is no error.
                if was_stopped_by_signal:
                    measured.code = ExitCode.INTERRUPTED
            except RolloutError as error:
                # A run that started has sent its own notification.
                if not self.repeats.has_notified:
                    from rollout.cli.stages.observers import notify_of_failed_pass

                    notify_of_failed_pass(error, settings, self.repeats)
                raise
            finally:
                # A signal during `Pass.run` is meant for the process, too.
                if stop.is_requested:
                    self.process_stop.request()
        return measured.code

    def skip_pass(self, reason: str, details: Sequence[str] = ()) -> ExitCode:
        if self.metrics:
            self.metrics.skip_attempt()
        if self.settings.output.as_json:
            from rollout.cli.stages.execute import write_lines_without_plan

            write_lines_without_plan(reason)
        else:
            show_lines("\n".join((f"No node can be rebooted now: {reason}.", *details)))
        return ExitCode.OK

    def run_until_stopped(self, ignore_signals: Callable[[], None]) -> None:
        """Run passes. `ignore_signals` then protects the process's end."""
        clock = wiring.system_clock()
        with suppress(KeyboardInterrupt):
            while not self.process_stop.is_due:
                # A pass longer than --every is followed at once.
                next_pass_at = clock.monotonic() + self.settings.operate.every
                try:
                    # The metrics have its exit code.
                    self.run_once()
                except BrokenPipeError:
                    raise
                except Exception as error:  # noqa: BLE001 - the next pass may succeed
                    failures.report_error(error, verbose=bool(self.settings.output.verbose))
                self._await_next_pass(clock, next_pass_at)
            # A KeyboardInterrupt may come right now, which this context suppresses.
            ignore_signals()
        # A KeyboardInterrupt in the loop skips the first call.
        ignore_signals()
        say("stopped on request: no more passes will run")

    def _await_next_pass(self, clock: Clock, next_pass_at: float) -> None:
        """Wait until the next pass is due and the lock is free.

        Or until another process's Lease expires, so that a pass resumes its nodes. A Lease that
        expired earlier does not count: the last pass has tried it.
        """
        watch = self.watch
        lease_before = watch.expired_version
        api: ClusterApi | None = None
        # The pass has reported a missing connection.
        with suppress(RolloutError):
            api = wiring.cluster_api(self.settings)
        while not self.process_stop.is_due:
            has_read_lease = self._observe_lease(api)
            is_lock_free = watch.state in (HolderState.NOBODY, HolderState.GONE)
            if is_lock_free and clock.monotonic() >= next_pass_at:
                return
            has_newly_expired = watch.expired_version not in (None, lease_before)
            # An unread Lease may have been renewed.
            if has_newly_expired and has_read_lease:
                return
            clock.wait(self.process_stop, _POLL_SECONDS)

    def _observe_lease(self, api: ClusterApi | None) -> bool:
        if api is None:
            return False
        try:
            self.watch.observe(read_lease(api, self.settings.lock.namespace))
        except ApiError:
            return False
        return True
