"""All hosts of a lab: machines, their SSH servers, and what the written inventory says of them."""

import asyncio
import random
import socket
from collections.abc import Sequence

import asyncssh

from rollout.lab.clock import LabClock
from rollout.lab.credentials import InventoryHost, public_line
from rollout.lab.hostplan import HostPlan
from rollout.lab.hosts.faults import HostKeyFault
from rollout.lab.hosts.machine import HostTimings, Machine
from rollout.lab.hosts.ssh_server import HostServer, new_host_key
from rollout.lab.hosts.zincati import DROP_IN, Zincati, drop_in


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
        # what known_hosts and the inventory say
        self.inventory: list[InventoryHost] = []
        for plan, listening in zip(plans, sockets, strict=True):
            address, port = listening.getsockname()[:2]
            machine = Machine(
                plan.name, address, plan.settings, clock=clock, rng=rng, timings=timings
            )
            key = new_host_key()
            self.machines[plan.name] = machine
            self.servers[plan.name] = HostServer(
                machine, listening, authorized=authorized, host_key=key
            )
            known = new_host_key() if machine.faults.host_key is HostKeyFault.OTHER else key
            self.inventory.append(
                InventoryHost(plan.name, plan.role, address, port, public_line(known))
            )
            if plan.settings.zincati is not None:
                self.agents[plan.name] = Zincati(machine, rng=rng)

    @property
    def shared_port(self) -> int | None:
        """The port that all hosts listen on, each on its own address; None where each has its own port."""
        ports = {host.port for host in self.inventory}
        return ports.pop() if len(ports) == 1 else None

    def use_fleetlock(self, base_url: str) -> None:
        """Have every Zincati ask the FleetLock server there; empty: nobody."""
        for machine in self.machines.values():
            if machine.settings.zincati is not None:
                machine.files[DROP_IN] = drop_in(base_url, machine.settings.zincati.group)

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
