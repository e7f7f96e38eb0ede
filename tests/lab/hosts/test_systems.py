"""Hosts that run something else than Flatcar, and say in their own ways that they need a reboot."""

import json
from collections.abc import Callable
from typing import Any

from rollout.lab.hosts.engine import UpdateEngine
from rollout.lab.hosts.machine import STAGED_LOCK, Machine
from rollout.lab.hosts.release import System
from rollout.lab.hosts.services import checksum_of
from tests.lab.hosts.conftest import CHECKED, MachineFactory

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
    assert ask(machine, "[ -e /var/run/reboot-required ] && echo yes").out == "yes\n"
    booted_anew(machine)
    assert ask(machine, "[ -e /run/reboot-required ]").status == 1
    assert machine.os_version == "24.04"


def test_a_boot_may_put_files_there_again(make_machine: MachineFactory, ask: Ask) -> None:
    again = {"/run/reboot-required": "again\n"}
    machine = host(make_machine, System.UBUNTU, "24.04", engine=UpdateEngine(), boot_files=again)
    booted_anew(machine)
    assert ask(machine, "cat /run/reboot-required").out == "again\n"


def deployments(machine: Machine, ask: Ask) -> list[tuple[str, bool, bool]]:
    status = json.loads(ask(machine, "rpm-ostree status --json").out)
    return [(item["checksum"], item["staged"], item["booted"]) for item in status["deployments"]]


def test_fedora_coreos_boots_what_it_has_staged(make_machine: MachineFactory, ask: Ask) -> None:
    engine = UpdateEngine.with_staged(NEW, checked=CHECKED)
    machine = host(make_machine, System.FEDORA_COREOS, OLD, engine=engine)
    assert f"OSTREE_VERSION='{OLD}'\n" in ask(machine, "cat /etc/os-release").out
    assert deployments(machine, ask) == [(checksum_of(NEW), True, False), (checksum_of(OLD), False, True)]
    assert ask(machine, "[ -e /run/reboot-required ]").status == 1
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
