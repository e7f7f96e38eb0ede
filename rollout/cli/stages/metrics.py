"""Metrics of a pass: made, told of its end however it comes, and on their way to where the operator wants them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rollout.cli import failures, wiring
from rollout.cli.files import write_whole
from rollout.cli.settings.schema import Settings
from rollout.cli.terminal import say
from rollout.errors import ExitCode
from rollout.ports import Clock

if TYPE_CHECKING:
    from rollout.report.metrics import Metrics

_LARGEST_TEXTFILE = 16_000_000
# Metrics of thousands of nodes take a while to write, and are collected a few times a minute.
_EVERY_SECONDS = 5.0


@dataclass(slots=True)
class MeasuredPass:
    """A pass under way, and how it ended."""

    code: ExitCode = ExitCode.OK


@contextmanager
def measured_pass(metrics: "Metrics | None") -> Iterator[MeasuredPass]:
    """One pass. Its result is the code that it is given, or that of the exit or error that this is left with."""
    measured, clock = MeasuredPass(), wiring.system_clock()
    if metrics:
        metrics.begin_pass(clock.now())
    try:
        yield measured
    except BaseException as error:
        measured.code = failures.exit_code(error)
        raise
    finally:
        if metrics:
            from rollout.report.metrics import PassResult

            name = measured.code.name.lower()
            result = PassResult(name) if name in set(PassResult) else PassResult.ERROR
            metrics.end_pass(result, clock.now())


@contextmanager
def metered(settings: Settings, server: str, *, serves: bool = False) -> "Iterator[Metrics | None]":
    """Metrics, if any are wanted, on their way for as long as this context lasts.

    They are of the cluster at `server`, if it has no other name.

    With `serves` they are served as well, where that is wanted; `InputError` where that cannot be.
    """
    options = settings.metrics
    listen = options.listen if serves else ""
    if not (options.textfile or options.pushgateway or listen):
        yield None
        return
    from rollout.report.metrics import Metrics

    metrics = Metrics(name_of(settings, server))
    with ExitStack() as deliveries:
        if file := options.textfile:
            deliveries.enter_context(delivered(str(file), _textfile(file, metrics), lambda: metrics.generation))
        if options.pushgateway:
            from rollout.adapters.metrics import Pushgateway

            gateway = Pushgateway(options.pushgateway, metrics.cluster)

            def push() -> None:
                gateway.push(metrics, metrics.last_success(), is_whole=metrics.is_whole)

            deliveries.enter_context(delivered(gateway.url, push, lambda: metrics.generation))
        if listen:
            from rollout.adapters.metrics import served

            say(f"metrics: {deliveries.enter_context(served(listen, metrics, lambda: metrics.is_ready))}")
        yield metrics


def _textfile(file: Path, metrics: "Metrics") -> Callable[[], None]:
    """Return what writes a file again and again, which is read once before, for what outlives a process."""

    @cache
    def read() -> None:
        # one that cannot be read, or is none of ours, says nothing; the parser has errors of many kinds
        with suppress(Exception):
            if file.is_file() and file.stat().st_size <= _LARGEST_TEXTFILE:
                metrics.remember(file.read_text(encoding="utf-8"))

    def write() -> None:
        read()
        write_whole(file, metrics.text())

    return write


def name_of(settings: Settings, server: str) -> str:
    """Return the cluster's name, or its server's address, without scheme and whatever of a login may stand in it."""
    parts = urlsplit(server)
    return settings.cluster.name or f"{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}" or server


@contextmanager
def delivered(
    place: str, deliver: Callable[[], None], generation: Callable[[], int], clock: Clock | None = None, last: float = 5
) -> Iterator[None]:
    """Within this context deliver whenever something is new, and once more at its end; the first failure is warned of.

    `place` names it in warnings, without any secret. `generation` says whether something is new, 0 that nothing is.
    `last` is how many seconds the end of the process waits for the last delivery.
    """
    clock, ended = clock or wiring.system_clock(), threading.Event()
    reasons = list[str]()

    def fail(why: str) -> None:
        if not reasons:
            say(f"warning: the metrics do not reach {place}: {why}")
        reasons.append(why)

    def run() -> None:
        known, is_last = 0, False
        while not is_last:
            is_last, now = clock.wait(ended, _EVERY_SECONDS), generation()
            try:
                if now != known:
                    deliver()
                    known = now
            except Exception as error:  # noqa: BLE001 - whatever it is, the nodes come first
                fail(str(error))

    thread = threading.Thread(target=run, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(last)
        if thread.is_alive():
            fail(f"no answer within {last:g}s")
