"""A host, and command lines for it, without a network."""

import asyncio
import random
from collections.abc import Callable, Mapping

import pytest

from rollout.lab.clock import LabClock
from rollout.lab.hosts.commands import answer
from rollout.lab.hosts.engine import UpdateEngine
from rollout.lab.hosts.faults import HEALTHY, HostFaults
from rollout.lab.hosts.machine import HostCommand, Machine
from rollout.lab.hosts.programs import PROGRAMS
from rollout.lab.hosts.release import System
from rollout.lab.hosts.session import Output, Session

CHECKED = 1_700_000_000
MachineFactory = Callable[..., Machine]


@pytest.fixture
def make_machine() -> MachineFactory:
    def make(
        *,
        engine: UpdateEngine | None = None,
        faults: HostFaults = HEALTHY,
        speed: float = 1000,
        locksmithd: bool = False,
        version: str = "4081.2.0",
        system: System = System.FLATCAR,
        files: Mapping[str, str] | None = None,
        boot_files: Mapping[str, str] | None = None,
        commands: Mapping[str, HostCommand] | None = None,
    ) -> Machine:
        return Machine(
            "worker-1",
            "127.0.0.2",
            version=version,
            clock=LabClock(speed),
            rng=random.Random(1),  # noqa: S311 - repeatable on purpose
            engine=engine or UpdateEngine.with_staged("4152.2.0", checked=CHECKED),
            faults=faults,
            locksmithd=locksmithd,
            system=system,
            files=files or {},
            boot_files=boot_files or {},
            commands=commands or {},
        )

    return make


@pytest.fixture
def machine(make_machine: MachineFactory) -> Machine:
    return make_machine()


@pytest.fixture
def ask() -> Callable[..., Output]:
    """Run a command line to its end, as an SSH session would."""

    def asked(machine: Machine, line: str, *, user: str = "core", terminal: str = "") -> Output:
        async def run() -> Output:
            return await answer(Session(machine, user, PROGRAMS, terminal), line)

        return asyncio.run(run())

    return asked
