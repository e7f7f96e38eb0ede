"""`status --watch`: the board, the lines or the JSON lines of a rollout that another process carries out."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rollout.cli import wiring
from rollout.cli.lock_owner import has_ended_here
from rollout.cli.settings.schema import Output
from rollout.cli.signals import interrupted_by_signals
from rollout.cli.stages.gather import with_patience
from rollout.cli.terminal import error_console, is_forced, show
from rollout.execution.base.stop import StopRequest
from rollout.execution.lease import read_lease
from rollout.execution.rollout.watch import Standing, Watched, watch
from rollout.model.progress import Notice, RunFinished, RunResult
from rollout.model.text import printable
from rollout.ports import ClusterApi, Observer
from rollout.report.json_lines import JsonLines
from rollout.report.live import LiveProgress
from rollout.report.plain import PlainLines
from rollout.report.watch import footer, standing_text, watched_text


@dataclass(slots=True)
class _Screen:
    """What stands below the board."""

    lines: Sequence[str] = field(default_factory=tuple)


def watch_run(api: ClusterApi, namespace: str, general: Output) -> None:
    """Tell of the rollout until it has ended, or until it is interrupted, which the rollout is not."""
    # a server that is not there, or a user who may not see the lock, is told of before a board is drawn
    with_patience(lambda: read_lease(api, namespace))
    clock, screen = wiring.system_clock(), _Screen()
    with interrupted_by_signals(StopRequest()), _shown(api, screen, as_json=general.as_json) as observer:

        def standing(now: Standing) -> None:
            screen.lines = footer(now)
            if text := standing_text(now):
                observer.notify(Notice(clock.now(), text))

        # whoever looks at a terminal waits for what comes; a script wants to know that there is none
        waits = isinstance(observer, LiveProgress)
        watched = watch(api, clock, namespace, observer, standing, has_gone=has_ended_here, waits=waits)
    _show_end(watched, general)


def _show_end(watched: Watched, general: Output) -> None:
    if general.as_json:
        if watched.result is None:
            JsonLines(sys.stdout).notify(RunFinished(wiring.system_clock().now(), RunResult(())))
    else:
        show(watched_text(watched, width=general.width))


@contextmanager
def _shown(api: ClusterApi, screen: _Screen, *, as_json: bool) -> Iterator[Observer]:
    """Whoever shows it: on standard output, for it is what was asked for.

    Where that moves, and standard error is a terminal too, all is written by one console: what is said beside it stands
    above it.
    """
    from rollout.report.shared_console import SharedConsole

    console = SharedConsole(stderr=False, force_terminal=is_forced(sys.stdout))
    if console.is_terminal and sys.stderr.isatty():
        console = error_console()
    clock = wiring.system_clock()
    if as_json:
        lines = JsonLines(sys.stdout)
        lines.begin(clock.now())
        yield lines
    elif console.is_terminal and not console.is_dumb_terminal:
        server_time = api.server_time
        with LiveProgress(
            console,
            age=lambda at: max(0.0, ((server_time() or clock.now()) - at).total_seconds()),
            footer=lambda: [printable(line) for line in screen.lines],
        ) as live:
            yield live
    else:
        yield PlainLines(sys.stdout)
