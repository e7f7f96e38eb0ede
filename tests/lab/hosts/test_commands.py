"""What hosts answer to command lines, to the byte where clients parse it."""

import time
from collections.abc import Callable

import pytest

from rollout.lab.hosts.faults import BusFault, HostFaults, SudoFault
from rollout.lab.hosts.machine import HostCommand, Machine
from rollout.lab.hosts.session import Output

Ask = Callable[..., Output]
MakeMachine = Callable[..., Machine]

BUS = "com.coreos.update1 /com/coreos/update1 com.coreos.update1.Manager"
GET_STATUS = f"busctl --system call {BUS} GetStatus"
CLIENT = "update_engine_client -status"
STAGED = """LAST_CHECKED_TIME=1700000000
PROGRESS=0.000000
CURRENT_OP=UPDATE_STATUS_UPDATED_NEED_REBOOT
NEW_VERSION=4152.2.0
NEW_SIZE=465881871
"""
NONE = "cat: /none: No such file or directory\n"
UNKNOWN = "LAST_CHECKED_TIME=0\nPROGRESS=0.000000\nCURRENT_OP=(null)\nNEW_VERSION=(null)\nNEW_SIZE=0\n"


def test_client_and_bus_say_what_is_staged(machine: Machine, ask: Ask) -> None:
    client = ask(machine, CLIENT)
    assert (client.status, client.out) == (0, STAGED)
    assert "Querying Update Engine status..." in client.err
    assert ask(machine, GET_STATUS) == Output(
        0, 'xdssx 1700000000 0 "UPDATE_STATUS_UPDATED_NEED_REBOOT" "4152.2.0" 465881871\n'
    )


def test_a_restarted_engine_knows_only_that_something_is_staged(machine: Machine, ask: Ask) -> None:
    said = ask(machine, f"sudo -n systemctl restart update-engine && {CLIENT}")
    assert said.out == STAGED.replace("1700000000", "0").replace("4152.2.0", "0.0.0").replace("465881871", "0")
    assert ask(machine, "test -e /var/run/update_engine_autoupdate_completed").status == 0


def test_a_denied_client_prints_null_and_succeeds(make_machine: MakeMachine, ask: Ask) -> None:
    machine = make_machine(faults=HostFaults(bus=BusFault.DENIED))
    denied = ask(machine, CLIENT)
    assert (denied.status, denied.out) == (0, UNKNOWN)
    assert "access denied" in denied.err
    assert ask(machine, GET_STATUS) == Output(1, "", "Call failed: Access denied\n")
    assert ask(machine, f"sudo -n {CLIENT}").out == STAGED


def test_an_absent_bus_takes_the_client_half_a_minute(make_machine: MakeMachine, ask: Ask) -> None:
    machine = make_machine(faults=HostFaults(bus=BusFault.ABSENT), speed=100)
    began = time.monotonic()
    said = ask(machine, CLIENT)
    assert time.monotonic() - began >= 0.3
    assert (said.status, said.out) == (1, "")
    assert ask(machine, f"timeout 12 {CLIENT}").status == 124
    assert ask(machine, GET_STATUS).err == (
        "Call failed: The name com.coreos.update1 was not provided by any .service files\n"
    )


@pytest.mark.parametrize(
    ("command", "out", "status"),
    [
        ("is-active locksmithd", "inactive\n", 3),
        ("is-active update-engine.service nosuch", "active\ninactive\n", 0),
        ("is-active nosuch", "inactive\n", 4),
        ("is-enabled locksmithd", "masked\n", 1),
        ("is-enabled nosuch", "not-found\n", 4),
        ("show -p ActiveState -p LoadState locksmithd.service", "ActiveState=inactive\nLoadState=masked\n", 0),
        ("show -p LoadState nosuch.service", "LoadState=not-found\n", 0),
    ],
)
def test_systemctl_answers(command: str, out: str, status: int, machine: Machine, ask: Ask) -> None:
    assert ask(machine, f"systemctl {command}") == Output(status, out)


def test_units_and_power_are_roots(machine: Machine, ask: Ask) -> None:
    assert ask(machine, "systemctl unmask locksmithd").status == 1
    assert ask(machine, "sudo -n systemctl start locksmithd").err.endswith("is masked.\n")
    line = "sudo -n systemctl unmask locksmithd; sudo -n systemctl enable --now locksmithd"
    assert ask(machine, f"{line}; systemctl is-active locksmithd").out == "active\n"
    for command in ("systemctl reboot", "reboot", "shutdown -r now"):
        assert ask(machine, command) == Output(1, "", "Call to Reboot failed: Interactive authentication required.\n")
    assert machine.reboots == 0


@pytest.mark.parametrize(
    ("fault", "command", "expected"),
    [
        (SudoFault.NONE, "sudo -n -l systemctl reboot", Output(0, "/usr/bin/systemctl reboot\n")),
        (SudoFault.NONE, "sudo -n nosuch", Output(1, "", "sudo: nosuch: command not found\n")),
        (SudoFault.PASSWORD, "sudo -n systemctl reboot", Output(1, "", "sudo: a password is required\n")),
        (
            SudoFault.REFUSED,
            "sudo -n systemctl reboot",
            Output(
                1, "", "Sorry, user core is not allowed to execute '/usr/bin/systemctl reboot' as root on worker-1.\n"
            ),
        ),
        (SudoFault.REFUSED, "sudo -n -l systemctl reboot", Output(1)),
    ],
)
def test_sudo(fault: SudoFault, command: str, expected: Output, make_machine: MakeMachine, ask: Ask) -> None:
    machine = make_machine(faults=HostFaults(sudo=fault))
    assert ask(machine, command) == expected
    assert machine.running


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("false || echo 'a \"b\"' && echo c", Output(0, 'a "b"\nc\n')),
        ("false && echo no || false", Output(1)),
        ('cat /none;\n. /etc/os-release; echo $ID "$VERSION"', Output(0, "flatcar 4081.2.0\n", NONE)),
        ("test -e /run/none -o -e /etc/os-release && echo yes", Output(0, "yes\n")),
        ("test -e /run/none -o -e /etc/none", Output(1)),
        ("/bin/sh -c 'echo one; false'", Output(1, "one\n")),
    ],
)
def test_plain_commands_one_after_another(line: str, expected: Output, machine: Machine, ask: Ask) -> None:
    assert ask(machine, line) == expected


@pytest.mark.parametrize("line", ["ls | wc -l", "echo 'open", "(id)", "echo `id`; sleep", "echo $(id)", "echo a >b"])
def test_what_takes_a_shell_is_refused_with_what_to_do(line: str, machine: Machine, ask: Ask) -> None:
    said = ask(machine, line)
    assert said.status != 0
    assert "`commands`" in said.err or "command not found" in said.err


def test_a_scenario_says_what_else_a_host_answers(make_machine: MakeMachine, ask: Ask) -> None:
    commands = {"own | way": HostCommand(output="done\n", exit=3), "go-down": HostCommand(reboots=True)}
    machine = make_machine(commands=commands)
    assert ask(machine, "own | way\n") == Output(3, "done\n")
    assert machine.running


def test_who_is_logged_in_until_the_host_goes_down(make_machine: MakeMachine, ask: Ask) -> None:
    machine = make_machine(faults=HostFaults(users=("core pts/0",)))
    assert ask(machine, "who").out.split()[:2] == ["core", "pts/0"]
    machine.reboots = 1
    assert ask(machine, "who").out == ""
