"""Real machines as the lab's kubelets see them, and the thread that tells the world of their boots."""

import random
import threading
from collections.abc import Callable, Sequence

from typing_extensions import override

from rollout.lab.clock import LabClock
from rollout.lab.hosts.machine import EngineState, HostSettings, Power, Update
from rollout.lab.hosts.machine import Machine as Host
from tests.e2e.machines import Machine

_EVERY = 0.05


class RealHost(Host):
    """A machine as the lab knows hosts: what its own kubelet unit said of the boot it is in."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        settings = HostSettings(
            version=machine.os_version, update=Update(state=EngineState.IDLE, to=None)
        )
        super().__init__(
            machine.name,
            machine.address,
            settings,
            clock=LabClock(),
            rng=random.Random(),  # noqa: S311
        )
        self.machine_id = machine.machine_id
        self.power = Power.RUNNING if machine.booted else Power.OFF

    def came_up(self) -> None:
        """Its kubelet runs, in another boot."""
        self.os_version = self.machine.os_version
        self.power_on()

    @override
    def _new_boot_id(self) -> str:
        return self.machine.booted


class Watch:
    """Looks at the machines all the time and tells the world, in the world's loop, when one goes or
    comes.
    """

    def __init__(
        self, hosts: Sequence[RealHost], call: Callable[[Callable[[], None]], None]
    ) -> None:
        self._hosts = hosts
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
            self._call(host.cut_power)
        if not host.running and boot_id:
            self._call(host.came_up)
