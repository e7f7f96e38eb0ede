"""How a machine goes down and comes back."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from rollout.lab.hosts.engine import UpdateEngine, UpdateOperation
from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.hosts.machine import STAGED_LOCK, HostEvent, Machine, Power
from rollout.lab.hosts.release import System
from rollout.lab.hosts.services import checksum_of
from tests.lab.hosts.conftest import CHECKED, MachineFactory

MakeMachine = Callable[..., Machine]


class Diary:
    """Notes what a machine tells."""

    def __init__(self, machine: Machine) -> None:
        self.lines: list[str] = []
        self._machine = machine
        self._more = asyncio.Event()
        machine.observers.append(self._note)

    async def holds(self, lines: int) -> None:
        async with asyncio.timeout(10):
            while len(self.lines) < lines:
                self._more.clear()
                await self._more.wait()

    def _note(self, event: HostEvent) -> None:
        self.lines.append(f"{event} {self._machine.power} {self._machine.os_version}")
        self._more.set()


async def rebooted(machine: Machine, events: int = 3) -> Diary:
    """Reboot, and wait for that much to happen and a little longer."""
    diary = Diary(machine)
    machine.reboot()
    await diary.holds(events)
    await asyncio.sleep(0.02)
    machine.stop()
    return diary


def test_a_reboot_brings_the_staged_version_and_a_new_boot_id(machine: Machine) -> None:
    boot_id, machine_id = machine.boot_id, machine.machine_id

    diary = asyncio.run(rebooted(machine))

    assert diary.lines == ["stopping shutting-down 4081.2.0", "down off 4081.2.0", "up running 4152.2.0"]
    assert machine.boot_id != boot_id
    assert machine.machine_id == machine_id
    assert machine.engine.operation is UpdateOperation.IDLE
    assert machine.os_image == "Flatcar Container Linux by Kinvolk 4152.2.0 (Oklo)"
    assert machine.reboots == 1


def test_a_rollback_is_a_reboot_to_the_old_version(make_machine: MakeMachine) -> None:
    machine = make_machine(faults=HostFaults(reboot=RebootFault.ROLLS_BACK))
    boot_id = machine.boot_id

    asyncio.run(rebooted(machine))

    assert (machine.os_version, machine.engine.operation) == ("4081.2.0", UpdateOperation.IDLE)
    assert machine.boot_id != boot_id


@pytest.mark.parametrize(
    ("faults", "events", "power", "reboots"),
    [
        (HostFaults(reboot=RebootFault.IGNORED), 0, Power.RUNNING, 0),
        (HostFaults(reboot=RebootFault.NEVER_RETURNS), 2, Power.OFF, 0),
        (HostFaults(boot_seconds=240), 2, Power.OFF, 0),
        (HostFaults(), 3, Power.RUNNING, 1),
    ],
)
def test_reboot_faults(faults: HostFaults, events: int, power: Power, reboots: int, make_machine: MakeMachine) -> None:
    machine = make_machine(faults=faults, speed=500)

    asyncio.run(rebooted(machine, events))

    assert (machine.power, machine.reboots) == (power, reboots)


def test_a_host_may_reboot_by_itself(make_machine: MakeMachine) -> None:
    machine = make_machine(faults=HostFaults(reboots_itself_after_seconds=20))

    async def wait() -> None:
        diary = Diary(machine)
        machine.start()
        await diary.holds(3)
        machine.stop()

    asyncio.run(wait())

    assert machine.reboots == 1


def test_what_lies_in_run_is_gone_after_a_boot(machine: Machine) -> None:
    machine.files = {"/run/x": "", "/tmp/y": "", "/home/core/z": ""}  # noqa: S108

    asyncio.run(rebooted(machine))

    assert list(machine.files) == ["/home/core/z"]
    assert not machine.engine.marked


# Hosts that run something else than Flatcar, and say in their own ways that they need a reboot.


Ask = Callable[..., Any]


OLD, NEW = "41.20250117.3.0", "41.20250130.3.0"


def booted_anew(machine: Machine) -> None:
    machine.cut_power()
    machine.power_on()


def host(make_machine: MachineFactory, system: System, version: str, **changes: Any) -> Machine:
    return make_machine(system=system, version=version, **changes)


def test_ubuntu_has_a_marker_that_goes_with_the_boot_and_no_update_engine(
    make_machine: MachineFactory, ask: Ask
) -> None:
    files = {"/run/reboot-required": "*** System restart required ***\n"}
    machine = host(make_machine, System.UBUNTU, "24.04", engine=UpdateEngine(), files=files)
    assert "ID=ubuntu\n" in ask(machine, "cat /etc/os-release").out
    assert machine.os_image == "Ubuntu 24.04 LTS"
    for absent in ("update_engine_client -status", "rpm-ostree status", "cat /etc/flatcar/update.conf"):
        assert ask(machine, absent).status != 0
    assert ask(machine, "systemctl is-active locksmithd update-engine").status == 4
    assert ask(machine, "test -e /var/run/reboot-required && echo yes").out == "yes\n"
    booted_anew(machine)
    assert ask(machine, "test -e /run/reboot-required").status == 1
    assert machine.os_version == "24.04"


def deployments(machine: Machine, ask: Ask) -> list[tuple[str, bool, bool]]:
    status = json.loads(ask(machine, "rpm-ostree status --json").out)
    return [(item["checksum"], item["staged"], item["booted"]) for item in status["deployments"]]


def test_fedora_coreos_boots_what_it_has_staged(make_machine: MachineFactory, ask: Ask) -> None:
    engine = UpdateEngine.with_staged(NEW, checked=CHECKED)
    machine = host(make_machine, System.FEDORA_COREOS, OLD, engine=engine)
    assert f"OSTREE_VERSION='{OLD}'\n" in ask(machine, "cat /etc/os-release").out
    assert deployments(machine, ask) == [(checksum_of(NEW), True, False), (checksum_of(OLD), False, True)]
    assert ask(machine, "test -e /run/reboot-required").status == 1
    booted_anew(machine)
    assert deployments(machine, ask) == [(checksum_of(NEW), False, True)]


def test_what_is_locked_is_booted_once_it_was_finalized(make_machine: MachineFactory, ask: Ask) -> None:
    engine, lock = UpdateEngine.with_staged(NEW, checked=CHECKED), {STAGED_LOCK: ""}
    machine = host(make_machine, System.FEDORA_COREOS, OLD, engine=engine, files=lock)
    assert json.loads(ask(machine, "rpm-ostree status --json").out)["deployments"][0]["finalization-locked"]
    finalize = "rpm-ostree finalize-deployment --allow-missing-checksum"
    assert ask(machine, finalize).status == 1
    booted_anew(machine)
    assert machine.os_version == OLD
    engine = UpdateEngine.with_staged(NEW, checked=CHECKED)
    again = host(make_machine, System.FEDORA_COREOS, OLD, engine=engine, files=lock)
    assert (ask(again, f"sudo -n {finalize}").status, STAGED_LOCK in again.files) == (0, False)
