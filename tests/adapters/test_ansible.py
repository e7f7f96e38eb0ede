"""The Ansible executor over a lab's wire, asked directly: which boot a command reaches, and what
turns do.
"""

import errno
import json
import shlex
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from rollout.adapters.ansible import executor as executor_module
from rollout.adapters.ansible import playbook_run
from rollout.adapters.ansible.executor import AnsibleExecutor
from rollout.adapters.ansible.playbook_run import AnsiblePlaybooks
from rollout.adapters.ansible.settings import AnsibleSettings
from rollout.errors import HostKeyError, SshTimeoutError, SshUnreachableError
from rollout.execution.base.gate_ports import Occasion
from rollout.gather.hosts.probe import BOOT_COMMAND, parse_boot
from rollout.gather.hosts.probe_command import REBOOT_COMMAND
from rollout.lab.hosts.faults import HostFaults, HostKeyFault
from rollout.lab.hosts.machine import Power
from rollout.lab.lab import Lab
from rollout.model.host import Host, HostKeyChecking
from rollout.ports import CommandResult
from tests.conftest import StartLab

# Newer Pythons warn of forks beside threads, which ansible-runner's are.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab(nodes=3)


@pytest.fixture
def hosts(lab: Lab) -> dict[str, Host]:
    return {
        name: Host(name, machine.address, lab.ssh_port or 0, key_file=str(lab.key))
        for name, machine in lab.machines.items()
    }


def executor(lab: Lab, **said: object) -> AnsibleExecutor:
    given = {
        "inventory": lab.inventory,
        "known_hosts": lab.known_hosts,
        "folder": lab.directory,
        **said,
    }
    return AnsibleExecutor(AnsibleSettings(**given))  # type: ignore[arg-type]


@pytest.fixture
def ansible(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> AnsibleExecutor:
    monkeypatch.setenv("HOME", str(lab.directory))
    return executor(lab)


def boots(lab: Lab, name: str) -> int:
    return lab.scoreboard().reboots[name]


def reboot(lab: Lab, name: str) -> None:
    """Behind everybody's back, and wait until it is up again."""
    before = boots(lab, name)
    lab.call(lab.machines[name].reboot)
    end = time.monotonic() + 60
    while (
        boots(lab, name) == before
        or lab.call(lambda: lab.machines[name].power) is not Power.RUNNING
    ):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_command_reaches_the_boot_that_has_answered_or_nothing(
    ansible: AnsibleExecutor, lab: Lab, hosts: dict[str, Host]
) -> None:
    host = hosts["worker-1"]

    def too_late(_answer: CommandResult) -> bool:
        reboot(lab, host.name)
        return True

    with ansible.attending([host]):
        result = ansible.run_if(host, BOOT_COMMAND, too_late, REBOOT_COMMAND, timeout=60)
        assert result is not None
        assert "another boot" in result.stdout
        assert boots(lab, host.name) == 1
        assert (
            ansible.run_if(host, BOOT_COMMAND, lambda _answer: False, REBOOT_COMMAND, timeout=60)
            is None
        )
        assert boots(lab, host.name) == 1
        agreed = ansible.run_if(
            host, BOOT_COMMAND, lambda answer: parse_boot(answer) is not None, "true", timeout=60
        )
        assert agreed == CommandResult(0, "", "")


def test_a_host_that_hangs_is_given_up_and_costs_nobody_else(
    ansible: AnsibleExecutor, lab: Lab, hosts: dict[str, Host]
) -> None:
    lab.call(lambda: lab.machines["worker-1"].inflict(HostFaults(answer_delay_seconds=3600)))
    with closing(ansible.run_on_all(hosts, "echo here", timeout=3, concurrency=8)) as answers:
        found = dict(answers)
    assert isinstance(found["worker-1"], SshTimeoutError)
    assert "no response within 3 s" in str(found["worker-1"])
    assert [found[name] for name in ("cp-1", "worker-2")] == [CommandResult(0, "here\n", "")] * 2


def test_an_inventory_that_hangs_is_given_up(
    lab: Lab, hosts: dict[str, Host], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(lab.directory))
    monkeypatch.setattr("rollout.adapters.ansible.executor._LOADING_SECONDS", 1.0)
    inventory = tmp_path / "inventory.sh"
    inventory.write_text("#!/bin/sh\nexec sleep 60\n")
    inventory.chmod(0o755)
    hanging = executor(lab, inventory=inventory)
    with pytest.raises(SshUnreachableError, match=r"it did not finish within 2 s"):
        hanging.run(hosts["worker-1"], "true", timeout=1)


def test_the_first_command_of_a_shared_run_waits_for_a_slow_inventory(
    lab: Lab, hosts: dict[str, Host], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(lab.directory))
    monkeypatch.setattr(executor_module, "_SLACK_SECONDS", 3.0)
    host = hosts["worker-1"]
    variables = {
        "ansible_host": host.address,
        "ansible_port": host.port,
        "ansible_user": "core",
        "ansible_ssh_private_key_file": host.key_file,
    }
    document = {"all": {"hosts": [host.name]}, "_meta": {"hostvars": {host.name: variables}}}
    inventory = tmp_path / "inventory.sh"
    inventory.write_text(f"#!/bin/sh\nsleep 7\necho {shlex.quote(json.dumps(document))}\n")
    inventory.chmod(0o755)
    slow = executor(lab, inventory=inventory)
    with slow.attending([host]):
        answer = slow.run(host, "echo here", timeout=3)
    assert answer.stdout == "here\n"


def test_a_new_key_that_is_accepted_has_to_stay_the_same(
    lab: Lab, hosts: dict[str, Host], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(lab.directory))
    trusting = executor(
        lab, host_key_checking=HostKeyChecking.ACCEPT_NEW, known_hosts=tmp_path / "new"
    )
    host = hosts["worker-1"]
    lab.call(
        lambda: lab.machines["worker-1"].inflict(
            HostFaults(host_key=HostKeyFault.CHANGES_AT_REBOOT)
        )
    )
    assert trusting.run(host, "echo first", timeout=60).stdout == "first\n"
    reboot(lab, host.name)
    with pytest.raises(HostKeyError, match="has changed"):
        trusting.run(host, "echo second", timeout=60)


def test_a_command_on_a_connection_of_its_own_may_not_have_arrived(
    ansible: AnsibleExecutor, hosts: dict[str, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ansible.run

    def run_first(host: Host, command: str, *, timeout: float) -> CommandResult:
        if command == BOOT_COMMAND:
            return run(host, command, timeout=timeout)
        raise SshTimeoutError("no response within 15 s")

    monkeypatch.setattr(ansible, "run", run_first)
    with pytest.raises(SshUnreachableError, match="no response within 15 s"):
        ansible.run_if(
            hosts["worker-1"], BOOT_COMMAND, lambda _answer: True, REBOOT_COMMAND, timeout=60
        )


def failure_in_queue(settings: AnsibleSettings, host: Host) -> str:
    ansible = AnsibleExecutor(settings)
    with ansible.attending([host]), pytest.raises(SshUnreachableError) as caught:
        ansible.run(host, "true", timeout=1)
    return caught.value.message


def failure_alone(settings: AnsibleSettings, host: Host) -> str:
    with pytest.raises(SshUnreachableError) as caught:
        AnsibleExecutor(settings).run(host, "true", timeout=1)
    return caught.value.message


def failure_of_hook(settings: AnsibleSettings, host: Host) -> str:
    (settings.folder / "hook.yml").write_text("[]")
    playbooks = AnsiblePlaybooks(settings, {Occasion.PRE_REBOOT: settings.folder / "hook.yml"})
    return playbooks.run(
        Occasion.PRE_REBOOT, host, {}, timeout=1, check=lambda: None, notice=lambda _task: None
    )


@pytest.mark.parametrize("failure", [failure_in_queue, failure_alone, failure_of_hook])
def test_a_run_that_cannot_start_says_why_and_removes_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Callable[[AnsibleSettings, Host], str]
) -> None:
    def refuse(*_arguments: object) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(playbook_run, "write_variables", refuse)
    why = failure(AnsibleSettings(folder=tmp_path), Host("worker-1", "192.0.2.1"))
    assert why.endswith(": No space left on device")
    assert not list(temporary.iterdir())


def test_a_command_that_could_not_be_written_does_not_keep_the_host_from_the_next(
    ansible: AnsibleExecutor, hosts: dict[str, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    host = hosts["worker-1"]
    with ansible.attending([host]):
        assert ansible.run(host, "echo first", timeout=60).stdout == "first\n"
        with monkeypatch.context() as full_disk:
            full_disk.setattr(executor_module, "_write_command", refuse)
            with pytest.raises(SshUnreachableError, match="No space left on device"):
                ansible.run(host, "echo second", timeout=60)
        assert ansible.run(host, "echo third", timeout=60).stdout == "third\n"
