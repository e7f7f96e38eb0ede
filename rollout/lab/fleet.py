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
from rollout.lab.hosts.ssh_server import HostSshServer, new_host_key
from rollout.lab.hosts.zincati import DROP_IN, Zincati, drop_in


class Fleet:
    """The hosts by name. `authorized` is the key that may log in to all hosts."""

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
        self.ssh_servers: dict[str, HostSshServer] = {}
        self.agents: dict[str, Zincati] = {}
        self.inventory: list[InventoryHost] = []
        for plan, listening in zip(plans, sockets, strict=True):
            address, port = listening.getsockname()[:2]
            machine = Machine(
                plan.name, address, plan.settings, clock=clock, rng=rng, timings=timings
            )
            self.machines[plan.name] = machine
            host_key = new_host_key()
            self.ssh_servers[plan.name] = HostSshServer(
                machine, listening, authorized=authorized, host_key=host_key
            )
            if machine.faults.host_key is HostKeyFault.OTHER:
                # known_hosts gets another key than the host's.
                host_key = new_host_key()
            host = InventoryHost(
                name=plan.name,
                role=plan.role,
                address=address,
                port=port,
                public_key=public_line(host_key),
            )
            self.inventory.append(host)
            if plan.settings.zincati is not None:
                self.agents[plan.name] = Zincati(machine, rng=rng)

    @property
    def shared_port(self) -> int | None:
        ports = {host.port for host in self.inventory}
        return ports.pop() if len(ports) == 1 else None

    def use_fleetlock(self, base_url: str) -> None:
        for machine in self.machines.values():
            if machine.settings.zincati is not None:
                machine.files[DROP_IN] = drop_in(base_url, machine.settings.zincati.group)

    async def start(self) -> None:
        for server in self.ssh_servers.values():
            await server.start()
        for machine in self.machines.values():
            machine.start()
        for agent in self.agents.values():
            agent.start()

    async def close(self) -> None:
        for machine in self.machines.values():
            machine.stop()
        tasks = [task for machine in self.machines.values() for task in machine.background]
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in self.ssh_servers.values():
            await server.close()
