"""All hosts of a lab: machines, their SSH servers, and what the written inventory says of them."""

import asyncio
import random
import socket
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import asyncssh

from rollout.lab.clock import LabClock
from rollout.lab.credentials import InventoryHost, public_line
from rollout.lab.hostplan import HostPlan
from rollout.lab.hosts.engine import System, UpdateEngine
from rollout.lab.hosts.faults import HEALTHY, HostKeyFault
from rollout.lab.hosts.machine import HostTimings, Machine
from rollout.lab.hosts.ssh_server import HostServer, new_host_key
from rollout.lab.hosts.zincati import DROP_IN, Zincati, drop_in
from rollout.lab.scenario import Update, UpdateState
from rollout.model.host import UpdateOperation

_VERSION: Final = "4081.2.0"
_LAST_CHECK: Final = timedelta(minutes=15)


class Fleet:
    """The hosts by name; each gets one of the listening sockets, in order.

    `authorized` is the key that may log in to all of them.
    """

    def __init__(
        self,
        plans: Sequence[HostPlan],
        sockets: Sequence[socket.socket],
        *,
        clock: LabClock,
        rng: random.Random,
        timings: HostTimings,
        authorized: asyncssh.SSHKey,
    ) -> None:
        self.machines: dict[str, Machine] = {}
        self.servers: dict[str, HostServer] = {}
        self.agents: dict[str, Zincati] = {}
        self._groups = {plan.name: plan.settings.zincati.group for plan in plans if plan.settings.zincati is not None}
        self._inventory: list[InventoryHost] = []
        for plan, listening in zip(plans, sockets, strict=True):
            machine = _machine(plan, listening, clock=clock, rng=rng, timings=timings)
            key = new_host_key()
            self.machines[plan.name] = machine
            self.servers[plan.name] = HostServer(machine, listening, authorized=authorized, host_key=key)
            self._inventory.append(_inventory_host(plan, listening, key))
            if plan.settings.zincati is not None:
                self.agents[plan.name] = Zincati(machine, rng=rng)

    @property
    def inventory(self) -> Sequence[InventoryHost]:
        """What known_hosts and the inventory say."""
        return self._inventory

    @property
    def shared_port(self) -> int | None:
        """The port that all hosts listen on, each on its own address; None where each has its own port."""
        ports = {host.port for host in self._inventory}
        return ports.pop() if len(ports) == 1 else None

    def use_fleetlock(self, base_url: str) -> None:
        """Have every Zincati ask the FleetLock server there; empty: nobody."""
        for name, group in self._groups.items():
            self.machines[name].files[DROP_IN] = drop_in(base_url, group)

    async def start(self) -> None:
        """Serve, and let what the hosts do on their own begin."""
        for server in self.servers.values():
            await server.start()
        for machine in self.machines.values():
            machine.start()
        for agent in self.agents.values():
            agent.start()

    async def close(self) -> None:
        """Stop everything and wait until it has stopped."""
        for machine in self.machines.values():
            machine.stop()
        tasks = [task for machine in self.machines.values() for task in machine.background]
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in self.servers.values():
            await server.close()


def _machine(
    plan: HostPlan, listening: socket.socket, *, clock: LabClock, rng: random.Random, timings: HostTimings
) -> Machine:
    settings = plan.settings
    return Machine(
        plan.name,
        listening.getsockname()[0],
        version=settings.version or _VERSION,
        clock=clock,
        rng=rng,
        engine=_engine(settings.update or Update(), clock.now()),
        faults=settings.faults or HEALTHY,
        timings=timings,
        locksmithd=bool(settings.locksmithd),
        system=settings.system or System.FLATCAR,
        files=settings.files,
        boot_files=settings.boot_files,
        commands=settings.commands,
        zincati=settings.zincati is not None,
    )


def _engine(update: Update, now: datetime) -> UpdateEngine:
    checked = int((now - _LAST_CHECK).timestamp())
    if update.state in (UpdateState.STAGED, UpdateState.STAGED_FORGOTTEN) and update.to is not None:
        engine = UpdateEngine.with_staged(update.to, checked=checked)
        if update.state is UpdateState.STAGED_FORGOTTEN:
            engine.restart()
        return engine
    operation = UpdateOperation.__members__[update.state.name]
    progress = update.progress if operation is UpdateOperation.DOWNLOADING else 0.0
    return UpdateEngine(operation=operation, progress=progress, available=update.to, last_checked=checked)


def _inventory_host(plan: HostPlan, listening: socket.socket, key: asyncssh.SSHKey) -> InventoryHost:
    address, port = listening.getsockname()[:2]
    known = new_host_key() if plan.settings.faults and plan.settings.faults.host_key is HostKeyFault.OTHER else key
    return InventoryHost(plan.name, plan.role, address, port, public_line(known))
