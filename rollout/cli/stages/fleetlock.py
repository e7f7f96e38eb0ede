import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from rollout.cli import gate_wiring, wiring
from rollout.cli.settings.rules import fleetlock_policy, groups_of, selection_of
from rollout.cli.settings.schema import FleetLockSettings, Settings
from rollout.cli.stages.execute import progress_display
from rollout.cli.stages.metrics import cluster_name
from rollout.cli.stages.observers import run_journal, run_notifications
from rollout.cli.terminal import say
from rollout.errors import ExitCode, InputError, RolloutError
from rollout.model.plan import RolloutPlan
from rollout.ports import Observer

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from rollout.server.state import ServerSettings


def _require_library() -> None:
    try:
        import_module("aiohttp")
    except ImportError as error:
        raise RolloutError(
            f"the FleetLock server needs a library that is not installed: {error}",
            hint=f"{sys.executable} -m pip install 'aiohttp>=3.10'",
        ) from error


def serve_fleetlock(settings: Settings) -> None:
    policy = fleetlock_policy(settings)
    _require_library()
    import asyncio

    from rollout.adapters.web import parse_address
    from rollout.report.metric_families import FleetLockMetrics
    from rollout.report.metrics import Metrics
    from rollout.server import http
    from rollout.server.connections import Listening
    from rollout.server.service import running_service
    from rollout.server.state import ServerContext

    api = wiring.cluster_api(settings)
    name = cluster_name(settings, api.server)
    metrics = Metrics(name)
    fleetlock_metrics = FleetLockMetrics(name)
    output = settings.output
    progress = progress_display(
        as_json=output.as_json, may_redraw=False, names_pods=output.verbose > 0
    )
    with progress as observer:
        context = ServerContext(
            settings=_fleetlock_settings(settings),
            api=api,
            clock=wiring.system_clock(),
            notice=say,
            observers_of=partial(_observers_of_run, settings, (metrics, observer)),
            count=fleetlock_metrics.count_response,
            gates=gate_wiring.gate_ports(settings, policy.gates.alerts),
        )
        options = settings.fleetlock
        _check_certificate_files(options)
        listening = Listening(*parse_address(options.listen), options.tls_cert, options.tls_key)
        # Report a bad certificate before any thread starts.
        listening.check_certificate()
        with running_service(context) as service:
            fleetlock_metrics.read_slots = lambda: context.slots.cached
            fleetlock_metrics.count_nodes_in_hand = lambda: service.worker.thread_count
            exposition = wiring.exposition(metrics, fleetlock_metrics)

            def report_address(url: str) -> None:
                say(f"serving FleetLock at {url}/v1/")

            with _metrics_served(
                settings, (metrics, fleetlock_metrics), is_ready=lambda: not service.why_not_ready()
            ):
                asyncio.run(http.serve_hosts(service, exposition, listening, report_address))
    say("stopped on request: nodes are left as they are; another FleetLock server will continue")
    _end_if_threads_hang()


@contextmanager
def _metrics_served(
    settings: Settings, collectors: Sequence["Collector"], is_ready: Callable[[], bool]
) -> Iterator[None]:
    from rollout.adapters.metrics import serve_metrics
    from rollout.cli.stages.web import RunPages

    if not settings.metrics.listen:
        yield
        return
    make_page = RunPages(settings).page
    with serve_metrics(settings.metrics.listen, collectors, is_ready, make_page) as url:
        say(f"metrics: {url}/metrics")
        yield


def _end_if_threads_hang() -> None:
    from rollout.adapters.programs import kill_programs

    main_thread = threading.main_thread()
    # Python waits for these threads before it exits.
    running_threads = [
        thread for thread in threading.enumerate() if thread != main_thread and not thread.daemon
    ]
    if running_threads:
        sys.stdout.flush()
        kill_programs()
        os._exit(ExitCode.OK)


def _check_certificate_files(options: FleetLockSettings) -> None:
    from rollout.adapters.input_files import Trust, check_input
    from rollout.adapters.input_trust import hint_of

    try:
        for file in (options.tls_cert, options.tls_key):
            if file:
                check_input(file, trust=Trust.NOT_WRITABLE_BY_OTHERS)
    except OSError as error:
        files = f"--tls-cert {options.tls_cert}, --tls-key {options.tls_key}"
        message = f"cannot serve with {files}: {error.strerror}"
        raise InputError(message, hint=hint_of(error)) from error


def _fleetlock_settings(settings: Settings) -> "ServerSettings":
    from rollout.server.state import ServerSettings

    options = settings.fleetlock
    return ServerSettings(
        groups=groups_of(options),
        selection=selection_of(settings),
        policy=fleetlock_policy(settings),
        namespace=settings.lock.namespace,
        holder=f"fleetlock-server/{socket.gethostname()}/{os.getpid()}",
        lease_seconds=settings.lock.seconds,
        slot_timeout=options.slot_timeout,
    )


@contextmanager
def _observers_of_run(
    settings: Settings, shared: Sequence[Observer], plan: RolloutPlan
) -> Iterator[Sequence[Observer]]:
    with (
        run_journal(plan, "fleetlock", settings) as journal,
        run_notifications(plan, settings, unattended=True) as notifier,
    ):
        observers_or_none = (journal, *shared, notifier)
        yield [observer for observer in observers_or_none if observer is not None]
