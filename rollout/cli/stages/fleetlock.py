"""A FleetLock server from its flags: what it goes by, who hears of the nodes' ways, and where it listens."""

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from rollout.cli import wiring
from rollout.cli.settings.rules import groups_of, selection_of, server_policy
from rollout.cli.settings.schema import Settings
from rollout.cli.stages.journal import journalled
from rollout.cli.stages.metrics import name_of
from rollout.cli.stages.notify import News, Subject, notified
from rollout.cli.terminal import say
from rollout.errors import ExitCode, RolloutError
from rollout.execution.base.reporting import Observers, Unfailing
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy
from rollout.ports import Observer
from rollout.report.json_lines import JsonLines
from rollout.report.plain import PlainLines

if TYPE_CHECKING:
    from rollout.server.connections import Listening
    from rollout.server.state import ServerSettings

HOLDER_PREFIX = "fleetlock-server/"


@dataclass(frozen=True, slots=True)
class Serving:
    """All that a server goes by: the settings, and the rules that they mean."""

    given: Settings
    policy: Policy

    @property
    def settings(self) -> "ServerSettings":
        """By what it grants."""
        from rollout.server.state import ServerSettings

        return ServerSettings(
            groups=groups_of(self.given.fleetlock),
            selection=selection_of(self.given),
            policy=self.policy,
            namespace=self.given.lock.namespace,
            holder=f"{HOLDER_PREFIX}{socket.gethostname()}/{os.getpid()}",
            lease_seconds=self.given.lock.seconds,
            slot_timeout=self.given.fleetlock.slot_timeout,
        )

    @property
    def listening(self) -> "Listening":
        """Where it serves."""
        from rollout.adapters.metrics import parsed_address
        from rollout.server.connections import Listening

        host, port = parsed_address(self.given.fleetlock.listen)
        return Listening(host, port, self.given.fleetlock.tls_cert, self.given.fleetlock.tls_key)


def _require_libraries() -> None:
    """A plain install goes without the server's library, the extra `fleetlock` brings it."""
    try:
        import_module("aiohttp")
    except ImportError as error:
        raise RolloutError(
            f"the FleetLock server needs a library that is not installed: {error}",
            hint=f"{sys.executable} -m pip install 'node-rollout[fleetlock]'",
        ) from error


def serve(settings: Settings) -> None:
    """Serve until SIGTERM; `RolloutError` where it cannot."""
    serving = Serving(settings, server_policy(settings))
    _require_libraries()
    from rollout.report.metrics.fleetlock import FleetLockMetrics
    from rollout.report.metrics.instruments import Metrics
    from rollout.server import http
    from rollout.server.service import under_way
    from rollout.server.state import World

    api = wiring.cluster_api(settings.cluster)
    name = settings.cluster.name or name_of(api.server)
    metrics, tally = Metrics(name), FleetLockMetrics(name)
    with _shown(settings) as shown:
        watch = _Watch(settings, Observers((Unfailing(metrics), Unfailing(shown))))
        gates = wiring.gates(settings, serving.policy.gates.alerts)
        world = World(api, wiring.system_clock(), say, watch.watched, tally, gates)
        listening = serving.listening
        listening.tls()
        with under_way(serving.settings, world) as server:
            tally.slots, tally.unmoved, tally.in_hand = server.slots, server.unmoved, lambda: server.worker.working
            endpoints = http.Endpoints(
                server.service.pre_reboot,
                server.service.steady_state,
                server.why_not_ready,
                wiring.exposition(metrics, tally),
                tally,
                world.clock.monotonic,
            )
            http.serve(endpoints, listening, lambda url: say(f"serving FleetLock at {url}/v1/"))
    say("stopped on request: nodes are left as they stand, another server goes on with them")
    _leave()


def _leave() -> None:
    """End at once where a thread still waits for an API server that hangs: the interpreter would wait for it."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.stdout.flush()
        os._exit(ExitCode.OK)


@contextmanager
def _shown(settings: Settings) -> Iterator[Observer]:
    """Whoever shows what happens: JSON lines, or plain ones."""
    if settings.output.as_json:
        lines = JsonLines(sys.stdout)
        lines.begin(wiring.system_clock().now())
        yield lines
        return
    with PlainLines(sys.stderr) as plain:
        yield plain


@dataclass(frozen=True, slots=True)
class _Watch:
    """Who hears of one node's way."""

    settings: Settings
    shown: Observer

    @contextmanager
    def watched(self, plan: RolloutPlan) -> Iterator[Observer]:
        """Journal, notifications, and whoever shows it, as of any rollout."""
        subject = Subject(plan, lambda: False, unattended=True, news=News(), cluster=self.settings.cluster.name)
        with ExitStack() as stack:
            file, name = self.settings.output.journal, self.settings.cluster.name
            observer = stack.enter_context(journalled(self.shown, plan, "fleetlock", file, cluster_name=name))
            yield stack.enter_context(notified(observer, self.settings.notify, subject))
