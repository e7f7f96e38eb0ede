"""A FleetLock server from its flags: what it goes by, who hears of the nodes' ways, and where it listens."""

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from rollout.cli import wiring
from rollout.cli.settings.rules import groups_of, selection_of, server_policy
from rollout.cli.settings.schema import FleetLock, Settings
from rollout.cli.stages.execute import display
from rollout.cli.stages.journal import journalled
from rollout.cli.stages.metrics import name_of
from rollout.cli.stages.notify import notified
from rollout.cli.terminal import say
from rollout.errors import ExitCode, RolloutError
from rollout.execution.base.reporting import Observers, Unfailing
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy
from rollout.ports import Observer

if TYPE_CHECKING:
    from rollout.server.connections import Listening
    from rollout.server.state import ServerSettings

HOLDER_PREFIX = "fleetlock-server/"


def _server_settings(given: Settings, policy: Policy) -> "ServerSettings":
    """By what the server grants."""
    from rollout.server.state import ServerSettings

    return ServerSettings(
        groups=groups_of(given.fleetlock),
        selection=selection_of(given),
        policy=policy,
        namespace=given.lock.namespace,
        holder=f"{HOLDER_PREFIX}{socket.gethostname()}/{os.getpid()}",
        lease_seconds=given.lock.seconds,
        slot_timeout=given.fleetlock.slot_timeout,
    )


def _listening(server: FleetLock) -> "Listening":
    """Where it serves."""
    from rollout.adapters.metrics import parsed_address
    from rollout.server.connections import Listening

    host, port = parsed_address(server.listen)
    return Listening(host, port, server.tls_cert, server.tls_key)


def _require_libraries() -> None:
    """Refuse to serve without the server's library, which a plain install goes without."""
    try:
        import_module("aiohttp")
    except ImportError as error:
        raise RolloutError(
            f"the FleetLock server needs a library that is not installed: {error}",
            hint=f"{sys.executable} -m pip install 'node-rollout[fleetlock]'",
        ) from error


def serve(settings: Settings) -> None:
    """Serve until SIGTERM; `RolloutError` where it cannot."""
    policy = server_policy(settings)
    _require_libraries()
    from rollout.report.metrics.families import FleetLockMetrics
    from rollout.report.metrics.instruments import Metrics
    from rollout.server import http
    from rollout.server.service import under_way
    from rollout.server.state import World

    api = wiring.cluster_api(settings.cluster)
    name = settings.cluster.name or name_of(api.server)
    metrics, tally = Metrics(name), FleetLockMetrics(name)
    with display(as_json=settings.output.as_json, live=False) as shown:
        observer = Observers((Unfailing(metrics), Unfailing(shown)))
        gates = wiring.gates(settings, policy.gates.alerts)
        world = World(api, wiring.system_clock(), say, partial(_observed, settings, observer), tally.count, gates)
        listening = _listening(settings.fleetlock)
        listening.tls()
        with under_way(_server_settings(settings, policy), world) as server:
            tally.slots, tally.in_hand = lambda: server.book.latest, lambda: server.worker.working
            exposition = wiring.exposition(metrics, tally)
            http.serve(server, exposition, listening, lambda url: say(f"serving FleetLock at {url}/v1/"))
    say("stopped on request: nodes are left as they stand, another server goes on with them")
    _leave()


def _leave() -> None:
    """End at once where a thread still waits for an API server that hangs: the interpreter would wait for it."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.stdout.flush()
        os._exit(ExitCode.OK)


@contextmanager
def _observed(settings: Settings, shown: Observer, plan: RolloutPlan) -> Iterator[Observer]:
    """Have journal, notifications, and whoever shows it hear of one node's way, as of any rollout."""
    with (
        journalled(shown, plan, "fleetlock", settings) as journal,
        notified(journal, settings, plan, unattended=True) as observers,
    ):
        yield observers
