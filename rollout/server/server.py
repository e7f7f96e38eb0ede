"""A whole server: what answers, what works, and what ends both."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from rollout.errors import ApiError
from rollout.execution.base.deadline import Deadline
from rollout.execution.base.patience import PatientApi
from rollout.execution.base.stop import StopRequest
from rollout.model.cluster import Node
from rollout.model.fleetlock import Slots, UnaskedReboot
from rollout.model.node_marks import unmoved_reboots
from rollout.model.text import shortened, timestamp
from rollout.server.admission import Admission
from rollout.server.holders import Grants, Releases
from rollout.server.nodes import Machines
from rollout.server.protocol import Denied
from rollout.server.service import AskLog, Service
from rollout.server.state import Leadership, ServerSettings, SlotBook, World
from rollout.server.worker import Troubles, Worker

_PATIENCE = 10.0
# For how long what was read of the slots says that the API server is reached: they are read every few seconds.
_READY_SECONDS = 10.0
# Whoever hangs is not waited for: what is left undone another server finds on the cluster.
_LEAVING = 5.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server under way, without its wire."""

    service: Service
    machines: Machines
    worker: Worker
    book: SlotBook

    def why_not_ready(self) -> str:
        """Why nobody should ask here now, by what is known already; empty where they may."""
        try:
            _ = self.machines.nodes
        except Denied as denied:
            return denied.answer.value
        return self.book.why_unread(_READY_SECONDS)

    def slots(self) -> Slots:
        """Return the slots as they were seen last: for metrics."""
        return self.book.latest

    def unmoved(self) -> int:
        """How many nodes their last reboot has left on the version from before: for metrics."""
        try:
            return sum(1 for node in self.machines.nodes.values() if unmoved_reboots(node))
        except Denied:
            return 0


def _threads(server: Server, stop: StopRequest) -> tuple[threading.Thread, ...]:
    following = threading.Thread(target=server.machines.follow, args=(stop,), name="machines", daemon=True)
    return following, threading.Thread(target=server.worker.run, name="worker", daemon=True)


@contextmanager
def under_way(settings: ServerSettings, world: World) -> Iterator[Server]:
    """Run a server until this is left; then the Lease is given back, and every node is left as it stands."""
    stop, troubles = StopRequest(), Troubles(world.notice)
    book = SlotBook(world.api.within(_PATIENCE), world.clock, settings.namespace)
    leadership = Leadership(world.api.within(_PATIENCE), world.clock, settings.namespace, settings.holder)
    cluster = PatientApi(
        world.api,
        world.clock,
        lambda error: troubles.tell("waiting for the API server", str(error)),
        settings.api_patience,
    )
    machines = Machines(cluster, Unasked(world, book).note)
    worker = Worker(settings, world, book, leadership, stop)
    service = Service(
        settings,
        world,
        machines,
        book,
        Admission(settings, world, machines, book, leadership),
        Grants(settings, world, book, leadership),
        Releases(world, book, machines),
        worker,
        AskLog(world.clock, world.notice, machines.name_of),
    )
    server = Server(service, machines, worker, book)
    threads = _threads(server, stop)
    for thread in threads:
        thread.start()
    try:
        yield server
    finally:
        stop.request()
        worker.wake()
        leaving = Deadline(world.clock, _LEAVING)
        for thread in threads:
            thread.join(leaving.remaining)


@dataclass(frozen=True, slots=True)
class Unasked:
    """Has it known that hosts have rebooted without asking."""

    world: World
    book: SlotBook

    def note(self, nodes: Sequence[Node]) -> None:
        """Write it down beside the slots, where every replica that saw it finds it written."""
        at = timestamp(self.world.api.server_time() or self.world.clock.now())
        reboots = [UnaskedReboot(node.name, at, node.boot_id) for node in nodes]
        self.world.notice(f"rebooted without having asked: {shortened([node.name for node in nodes])}")
        with suppress(ApiError):
            self.book.change(lambda slots: slots.with_unasked(reboots))
