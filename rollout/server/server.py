"""A whole server: what answers, what works, and what ends both."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from rollout.errors import ApiError
from rollout.execution.base.patience import PatientApi
from rollout.execution.base.stop import StopRequest
from rollout.gather.cluster.slots import read_slots
from rollout.model.cluster import Node
from rollout.model.fleetlock import Slots, UnaskedReboot
from rollout.model.node_marks import unmoved_reboots
from rollout.model.text import shortened, timestamp
from rollout.ports import ClusterApi
from rollout.server.admission import Admission
from rollout.server.answers import Denied
from rollout.server.ask_log import AskLog
from rollout.server.grants import Grants
from rollout.server.kept import Kept
from rollout.server.leadership import Leadership
from rollout.server.machines import Machines
from rollout.server.releases import Releases
from rollout.server.service import Service
from rollout.server.settings import ServerSettings, World
from rollout.server.slots import SlotBook
from rollout.server.worker import Worker

_PATIENCE = 10.0
_READY_SECONDS = 3.0
_READY_KEPT = 0.5
_LEAVING = 20.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server under way, without its wire."""

    service: Service
    machines: Machines
    worker: Worker
    book: SlotBook
    readiness: Kept[str]

    def why_not_ready(self) -> str:
        """Why nobody should ask here now; empty where they may."""
        return self.readiness.now()

    def slots(self) -> Slots:
        """The slots as they were seen last: for metrics."""
        return self.book.latest

    def unmoved(self) -> int:
        """How many nodes their last reboot has left on the version from before: for metrics."""
        try:
            return sum(1 for node in self.machines.nodes.values() if unmoved_reboots(node))
        except Denied:
            return 0


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether hosts may ask here; anybody may want to know that, as often as they like."""

    api: ClusterApi
    namespace: str
    machines: Machines

    def why_not(self) -> str:
        """Why nobody should ask here now; empty where they may."""
        try:
            _ = self.machines.nodes
            read_slots(self.api.within(_READY_SECONDS), self.namespace)
        except Denied as denied:
            return denied.answer.value
        except ApiError as error:
            return error.message
        return ""


def _threads(server: Server, stop: StopRequest) -> tuple[threading.Thread, ...]:
    following = threading.Thread(target=server.machines.follow, args=(stop,), name="machines", daemon=True)
    return following, threading.Thread(target=server.worker.run, name="worker", daemon=True)


@contextmanager
def under_way(settings: ServerSettings, world: World) -> Iterator[Server]:
    """A server that works until this is left; then the Lease is given back, and every node is left as it stands."""
    stop, outage = StopRequest(), Once(world.notice)
    book = SlotBook(world.api.within(_PATIENCE), world.clock, settings.namespace)
    leadership = Leadership(world.api.within(_PATIENCE), world.clock, settings.namespace, settings.holder)
    cluster = PatientApi(world.api, world.clock, outage.hear, settings.api_patience)
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
    readiness = Kept(Readiness(world.api, settings.namespace, machines).why_not, _READY_KEPT, world.clock)
    server = Server(service, machines, worker, book, readiness)
    threads = _threads(server, stop)
    for thread in threads:
        thread.start()
    try:
        yield server
    finally:
        stop.request()
        worker.wake()
        for thread in threads:
            thread.join(_LEAVING)


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


@dataclass(slots=True)
class Once:
    """Tells what is new, not each time that it happens."""

    notice: Callable[[str], None]
    last: str = ""

    def hear(self, error: BaseException) -> None:
        """Of one failed attempt."""
        if str(error) != self.last:
            self.last = str(error)
            self.notice(f"waiting for the API server: {error}")
