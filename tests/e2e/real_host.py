"""Real machines as the lab's kubelets see them, and the thread that tells the world of their boots."""

import threading
from collections.abc import Callable, Sequence

from rollout.lab.world.world import World
from tests.e2e.machines import Machine

_EVERY = 0.05


class RealHost:
    """`HostState` of a machine: what its own kubelet unit said of the boot it is in."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.running = bool(machine.booted)
        self._boot_id = machine.booted
        self._version = machine.os_version

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def address(self) -> str:
        return self.machine.address

    @property
    def boot_id(self) -> str:
        return self._boot_id

    @property
    def machine_id(self) -> str:
        return self.machine.machine_id

    @property
    def os_image(self) -> str:
        return f"Flatcar Container Linux by Kinvolk {self._version} (Oklo)"

    @property
    def os_version(self) -> str:
        return self._version

    @property
    def staged_version(self) -> str:
        return ""

    def went_down(self) -> None:
        """Its kubelet is gone."""
        self.running = False

    def came_up(self, boot_id: str) -> None:
        """Its kubelet runs, in this boot."""
        self._boot_id, self._version, self.running = boot_id, self.machine.os_version, True


class Watch:
    """Looks at the machines all the time and tells the world, in the world's loop, when one goes or comes."""

    def __init__(self, hosts: Sequence[RealHost], world: World, call: Callable[[Callable[[], None]], None]) -> None:
        self._hosts = hosts
        self._world = world
        self._call = call
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY):
            for host in self._hosts:
                self._compare(host, host.machine.booted)

    def _compare(self, host: RealHost, boot_id: str) -> None:
        if host.running and boot_id != host.boot_id:
            self._call(lambda: self._down(host))
        if not host.running and boot_id:
            self._call(lambda: self._up(host, boot_id))

    def _down(self, host: RealHost) -> None:
        host.went_down()
        self._world.host_down(host.name)

    def _up(self, host: RealHost, boot_id: str) -> None:
        host.came_up(boot_id)
        self._world.host_up(host.name)
