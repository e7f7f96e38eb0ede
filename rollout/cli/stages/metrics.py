"""Metrics of a pass: made, told of its end however it comes, and on their way to where the operator wants them."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer

from rollout.cli import failures, wiring
from rollout.cli.files import write_whole
from rollout.cli.settings.unattended import Metrics as Places
from rollout.cli.terminal import say
from rollout.errors import ApiError, ExitCode
from rollout.model.host import HostFacts, HostObservation
from rollout.model.memory import Memory
from rollout.planning.eligibility.memory import why_held
from rollout.ports import ClusterApi, Observer

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
    from rollout.report.metrics.delivery import Delivery

    def generation() -> int:
        return metrics.generation

    if file := options.textfile:
        textfile = _Textfile(file, metrics)
        deliveries.enter_context(Delivery(str(file), textfile.write, generation, _warn))
    if options.pushgateway:
        from rollout.adapters.metrics import Pushgateway

        gateway = Pushgateway(options.pushgateway, metrics.cluster)

        def push() -> None:
            gateway.push(metrics, metrics.last_success(), is_whole=metrics.is_whole)

        deliveries.enter_context(Delivery(gateway.url, push, generation, _warn))


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
