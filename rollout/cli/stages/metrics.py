import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from rollout.adapters.local_files import write_whole
from rollout.cli import failures, wiring
from rollout.cli.settings.schema import Settings
from rollout.cli.stages.rollout_spec import RolloutSpec
from rollout.cli.terminal import say
from rollout.errors import ExitCode
from rollout.model.cluster import ClusterSnapshot
from rollout.model.host import HostObservation
from rollout.planning.eligibility.versions import update_standings

if TYPE_CHECKING:
    from rollout.report.metrics import Metrics

_LARGEST_TEXTFILE = 16_000_000
# Metrics of thousands of nodes are slow to write.
_SECONDS_BETWEEN_DELIVERIES = 5.0
_LAST_DELIVERY_SECONDS = 5.0


class MeasuredCode(Struct):
    code: ExitCode = ExitCode.OK


@contextmanager
def measure_attempt(metrics: "Metrics | None") -> Iterator[MeasuredCode]:
    """Count this context, which sets the exit code or raises an error, as one attempt."""
    measured = MeasuredCode()
    clock = wiring.system_clock()
    if metrics:
        metrics.begin_attempt(clock.now())
    try:
        yield measured
    except BaseException as error:
        measured.code = failures.error_exit_code(error)
        raise
    finally:
        if metrics:
            from rollout.report.metrics import AttemptResult

            metrics.end_attempt(AttemptResult.of(measured.code), clock.now())


@contextmanager
def deliver_metrics(
    settings: Settings, api_server: str, *, serves: bool = False
) -> "Iterator[Metrics | None]":
    """Yield None if there is no receiver.

    `api_server` is the cluster's default name. With `serves`, also serve the metrics over HTTP.
    """
    options = settings.metrics
    listen = options.listen if serves else ""
    if not (options.textfile or options.pushgateway or listen):
        yield None
        return
    from rollout.report.metrics import Metrics

    metrics = Metrics(cluster_name(settings, api_server))
    with ExitStack() as deliveries:
        if options.textfile:
            file = str(options.textfile)
            write = _textfile_writer(options.textfile, metrics)
            deliveries.enter_context(deliver_changes(file, write, lambda: metrics.change_count))
        if options.pushgateway:
            from rollout.adapters.metrics import Pushgateway

            gateway = Pushgateway(options.pushgateway, metrics.cluster)

            def push() -> None:
                gateway.push(metrics, metrics.last_success(), is_whole=metrics.has_plan)

            deliveries.enter_context(
                deliver_changes(gateway.url, push, lambda: metrics.change_count)
            )
        if listen:
            from rollout.adapters.metrics import serve_metrics
            from rollout.cli.stages.web import RunPages

            pages = RunPages(settings).page
            serving = serve_metrics(listen, (metrics,), lambda: metrics.is_ready, pages)
            url = deliveries.enter_context(serving)
            say(f"metrics: {url}/metrics")
        yield metrics


def _textfile_writer(file: Path, metrics: "Metrics") -> Callable[[], None]:
    """The first call keeps the metrics that are already in the file."""

    @cache
    def take_over_earlier_metrics() -> None:
        with suppress(Exception):
            if file.is_file() and file.stat().st_size <= _LARGEST_TEXTFILE:
                metrics.remember(file.read_text(encoding="utf-8"))

    def write() -> None:
        take_over_earlier_metrics()
        write_whole(file, metrics.text())

    return write


def observe_cluster(
    metrics: "Metrics | None",
    spec: RolloutSpec,
    observations: Mapping[str, HostObservation],
    snapshot: ClusterSnapshot,
) -> None:
    if metrics is None:
        return
    metrics.observe_memory(snapshot.memory)
    # A rollback does not ask the hosts for updates.
    if not spec.policy.rollback:
        longest_silence = spec.settings.detect.max_check_age
        metrics.observe_hosts(observations)
        metrics.observe_updates(update_standings(snapshot.nodes, observations, longest_silence))


def cluster_name(settings: Settings, api_server: str) -> str:
    if settings.cluster.name:
        return settings.cluster.name
    parts = urlsplit(api_server)
    _, _, host_and_port = parts.netloc.rpartition("@")
    path = parts.path.rstrip("/")
    return f"{host_and_port}{path}" or api_server


@contextmanager
def deliver_changes(
    place: str, deliver: Callable[[], None], count_changes: Callable[[], int]
) -> Iterator[None]:
    """Deliver changed metrics every few seconds, and at the end.

    The first failure prints a warning with the `place`, which must not be secret.
    """
    clock = wiring.system_clock()
    ended = threading.Event()
    has_warned = False

    def warn_once(problem: str) -> None:
        nonlocal has_warned
        if not has_warned:
            say(f"warning: cannot deliver the metrics to {place}: {problem}")
        has_warned = True

    def deliver_until_ended() -> None:
        delivered_changes = 0
        has_ended = False
        while not has_ended:
            # Deliver a last time at the end.
            has_ended = clock.wait(ended, _SECONDS_BETWEEN_DELIVERIES)
            # Changes during the delivery may be missed, so count before it.
            changes = count_changes()
            try:
                if changes != delivered_changes:
                    deliver()
                    delivered_changes = changes
            except Exception as error:  # noqa: BLE001 - whatever it is, the nodes come first
                warn_once(str(error))

    thread = threading.Thread(target=deliver_until_ended, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_LAST_DELIVERY_SECONDS)
        if thread.is_alive():
            warn_once(f"no response within {_LAST_DELIVERY_SECONDS:g}s")
