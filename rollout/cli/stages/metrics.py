"""Metrics of a pass: made, told of its end however it comes, and on their way to where the operator wants them."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import typer

from rollout.cli import failures, wiring
from rollout.cli.files import write_whole
from rollout.cli.settings.schema import Metrics as Places
from rollout.cli.terminal import say
from rollout.errors import ApiError, ExitCode
from rollout.model.host import HostFacts, HostObservation
from rollout.model.memory import Memory
from rollout.planning.eligibility.memory import why_held
from rollout.ports import Clock, ClusterApi, Observer

if TYPE_CHECKING:
    from rollout.report.metrics.instruments import Metrics

_LARGEST_TEXTFILE = 16_000_000
# How long the end of a pass may wait to hear what is held.
_MEMORY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Meter:
    """The metrics of a process, or nothing where nobody wants any."""

    metrics: "Metrics | None" = None

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Who is to be told of a run."""
        return (self.metrics,) if self.metrics else ()

    def observe_hosts(self, observations: Mapping[str, HostObservation], *, among_others: bool = False) -> None:
        """Count what the hosts have said, by Node; one that could not be judged does not count as either."""
        if self.metrics:
            facts = {name: seen.detection for name, seen in observations.items() if isinstance(seen, HostFacts)}
            waiting = {name: seen.needs_reboot for name, seen in facts.items() if not seen.unanswered}
            self.metrics.observe_nodes(waiting, among_others=among_others)

    def skip_pass(self) -> None:
        """Note that the pass under way is to do nothing."""
        if self.metrics:
            self.metrics.skip_pass()

    def observe(self, observations: Mapping[str, HostObservation], memory: Memory) -> None:
        """Count what hosts say, and which versions are held, before anything is done."""
        self.observe_hosts(observations)
        self.observe_memory(memory)

    def observe_memory(self, memory: Memory) -> None:
        """Which versions are held, by what is remembered of earlier rollouts."""
        if self.metrics and not memory.problem:
            self.metrics.observe_held(version for version in memory.versions if why_held(memory, version))

    def observe_lateness(self, seconds: float) -> None:
        """By how much the forecast is later than the date that was given; infinite for never."""
        if self.metrics:
            self.metrics.observe_lateness(seconds)

    @contextmanager
    def measured_pass(self, api: ClusterApi | None = None, namespace: str = "") -> Iterator["MeasuredPass"]:
        """One pass. Its result is the code that it is given, or that of the exit or error that this is left with."""
        measured = MeasuredPass(api, namespace)
        if self.metrics:
            self.metrics.begin_pass(wiring.system_clock().now())
        try:
            yield measured
        except BaseException as error:
            measured.code = ExitCode(error.exit_code) if isinstance(error, typer.Exit) else failures.exit_code(error)
            raise
        finally:
            self._end_pass(measured)

    def _end_pass(self, measured: "MeasuredPass") -> None:
        if self.metrics:
            from rollout.report.metrics.instruments import PassResult

            if measured.api:
                self._read_memory(measured.api, measured.namespace)
            name = measured.code.name.lower()
            result = PassResult(name) if name in set(PassResult) else PassResult.ERROR
            self.metrics.end_pass(result, wiring.system_clock().now())

    def _read_memory(self, api: ClusterApi, namespace: str) -> None:
        """Read what is held by now; where it cannot be read, what was known stands."""
        from rollout.gather.cluster.memory import read_memory

        with suppress(ApiError):
            self.observe_memory(read_memory(api.within(_MEMORY_SECONDS), namespace))


@dataclass(slots=True)
class MeasuredPass:
    """A pass under way: whom to ask, at its end, what is remembered, where that is known; and how it ended."""

    api: ClusterApi | None
    namespace: str
    code: ExitCode = ExitCode.OK


@contextmanager
def metered(options: Places, cluster_name: str, server: str, listen: str = "") -> Iterator[Meter]:
    """Metrics on their way for as long as this context lasts; of the cluster of this name, else of this address.

    With `listen` they are served there as well; `InputError` where that cannot be.
    """
    if not (options.is_used or listen):
        yield Meter()
        return
    from rollout.report.metrics.instruments import Metrics

    metrics = Metrics(cluster_name or name_of(server))
    with ExitStack() as deliveries:
        _deliver(metrics, options, deliveries)
        if listen:
            from rollout.adapters.metrics import MetricsServer

            serving = deliveries.enter_context(MetricsServer(listen, metrics, lambda: metrics.is_ready))
            say(f"metrics: {serving.url}")
        yield Meter(metrics)


def _deliver(metrics: "Metrics", options: Places, deliveries: ExitStack) -> None:
    clock = wiring.system_clock()

    def generation() -> int:
        return metrics.generation

    if file := options.textfile:
        textfile = _Textfile(file, metrics)
        deliveries.enter_context(Delivery(str(file), textfile.write, generation, _warn, clock))
    if options.pushgateway:
        from rollout.adapters.metrics import Pushgateway

        gateway = Pushgateway(options.pushgateway, metrics.cluster)

        def push() -> None:
            gateway.push(metrics, metrics.last_success(), is_whole=metrics.is_whole)

        deliveries.enter_context(Delivery(gateway.url, push, generation, _warn, clock))


@dataclass(slots=True)
class _Textfile:
    """A file that is read once, for what outlives a process, and then written again and again."""

    path: Path
    metrics: "Metrics"
    is_read: bool = False

    def write(self) -> None:
        if not self.is_read:
            self.is_read = True
            # one that cannot be read, or is none of ours, says nothing; the parser has errors of many kinds
            with suppress(Exception):
                self._read()
        write_whole(self.path, self.metrics.text())

    def _read(self) -> None:
        if self.path.is_file() and self.path.stat().st_size <= _LARGEST_TEXTFILE:
            self.metrics.remember(self.path.read_text(encoding="utf-8"))


def name_of(server: str) -> str:
    """Return an API server's address as a name: without scheme and whatever of a login may stand in it."""
    parts = urlsplit(server)
    return f"{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}" or server


def _warn(text: str) -> None:
    say(f"warning: {text}")


EVERY_SECONDS = 2.0
# How long the end of the process waits for the last delivery.
LAST_SECONDS = 5.0
# Metrics of thousands of nodes take a while to write: so many times as long is left to the work.
_REST = 20.0


class Delivery:
    """Delivers whenever something is new, and at the end. Enter it to begin; the first failure is warned of.

    `place` names it in warnings, without any secret. `generation` says whether something is new, 0 that nothing is.
    """

    def __init__(
        self,
        place: str,
        deliver: Callable[[], None],
        generation: Callable[[], int],
        warn: Callable[[str], None],
        clock: Clock,
        last: float = LAST_SECONDS,
    ) -> None:
        self._place = place
        self._deliver_now = deliver
        self._generation = generation
        self._warn = warn
        self._clock = clock
        self._last = last
        self._delivered = 0
        self._has_warned = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(self._last)
        if self._thread.is_alive():
            self._warn_once(f"no answer within {self._last:g}s")

    def _run(self) -> None:
        is_last, took = False, 0.0
        while not is_last:
            is_last = self._clock.wait(self._ended, max(EVERY_SECONDS, took * _REST))
            began = self._clock.monotonic()
            self._deliver()
            took = self._clock.monotonic() - began

    def _deliver(self) -> None:
        generation = self._generation()
        if generation == self._delivered:
            return
        try:
            self._deliver_now()
            self._delivered = generation
        except Exception as error:  # noqa: BLE001 - whatever it is, the nodes come first
            self._warn_once(str(error))

    def _warn_once(self, why: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"the metrics do not reach {self._place}: {why}")
