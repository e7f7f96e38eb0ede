"""A host, and a shell on it, without a network."""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from rollout.lab.clock import LabClock
from rollout.lab.hosts.commands.table import HOST_PROGRAMS
from rollout.lab.hosts.engine import UpdateEngine
from rollout.lab.hosts.faults import HEALTHY, HostFaults
from rollout.lab.hosts.machine import Machine
from rollout.lab.hosts.process import Buffer, Input, Process, Streams
from rollout.lab.hosts.release import System
from rollout.lab.hosts.shell import Shell

CHECKED = 1_700_000_000


@dataclass(frozen=True)
class Answer:
    """What a command gave."""

    status: int
    out: str
    err: str


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
        )

    return make


@pytest.fixture
def machine(make_machine: MachineFactory) -> Machine:
    return make_machine()


@pytest.fixture
def ask() -> Callable[..., Answer]:
    """Run a script to its end, as an SSH session would."""

    async def run(machine: Machine, script: str, stdin: str, user: str, name: str) -> Answer:
        out, err = Buffer(), Buffer()
        streams = Streams(Input.of(stdin), out, err)
        process = Process(machine, user, (name,), streams, {"HOME": "/home/core"}, HOST_PROGRAMS)
        return Answer(await Shell(process).run(script), out.text, err.text)

    def asked(machine: Machine, script: str, *, stdin: str = "", user: str = "core", name: str = "bash") -> Answer:
        return asyncio.run(run(machine, script, stdin, user, name))

    return asked
