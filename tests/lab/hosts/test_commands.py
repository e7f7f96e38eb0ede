"""What the hosts' programs answer, to the byte where clients parse it."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from rollout.gather.hosts.users import wall_command
from rollout.lab.hosts.engine import UpdateEngine, UpdateOperation
from rollout.lab.hosts.faults import BusFault, HostFaults, SudoFault
from rollout.lab.hosts.machine import Machine

Ask = Callable[..., Any]
MakeMachine = Callable[..., Machine]

BUS = "com.coreos.update1 /com/coreos/update1 com.coreos.update1.Manager"
GET_STATUS = f"busctl --system call {BUS} GetStatus"
STAGED = """LAST_CHECKED_TIME=1700000000
PROGRESS=0.000000
CURRENT_OP=UPDATE_STATUS_UPDATED_NEED_REBOOT
NEW_VERSION=4152.2.0
NEW_SIZE=465881871
"""
UNKNOWN = """LAST_CHECKED_TIME=0
PROGRESS=0.000000
CURRENT_OP=(null)
NEW_VERSION=(null)
NEW_SIZE=0
"""


@pytest.mark.parametrize("flag", ["-status", "--status", "-status=true"])
def test_the_client_prints_what_is_staged(flag: str, machine: Machine, ask: Ask) -> None:
    answer = ask(machine, f"update_engine_client {flag}")

    assert (answer.status, answer.out) == (0, STAGED)
    assert "Querying Update Engine status..." in answer.err


def test_an_idle_engine_names_no_version(make_machine: MakeMachine, ask: Ask) -> None:
    answer = ask(make_machine(engine=UpdateEngine()), "update_engine_client -status")

    assert answer.out == (
        "LAST_CHECKED_TIME=0\nPROGRESS=0.000000\nCURRENT_OP=UPDATE_STATUS_IDLE\nNEW_VERSION=0.0.0\nNEW_SIZE=0\n"
    )


def test_a_download_shows_its_progress(make_machine: MakeMachine, ask: Ask) -> None:
    engine = UpdateEngine(operation=UpdateOperation.DOWNLOADING, progress=0.42, available="4152.2.0", last_checked=7)
    machine = make_machine(engine=engine)

    assert (
        "PROGRESS=0.420000\nCURRENT_OP=UPDATE_STATUS_DOWNLOADING\n" in ask(machine, "update_engine_client -status").out
    )
    assert ask(machine, GET_STATUS).out == 'xdssx 7 0.42 "UPDATE_STATUS_DOWNLOADING" "4152.2.0" 465881871\n'


def test_busctl_prints_the_signature_first(machine: Machine, ask: Ask) -> None:
    answer = ask(machine, GET_STATUS)

    assert answer.out == 'xdssx 1700000000 0 "UPDATE_STATUS_UPDATED_NEED_REBOOT" "4152.2.0" 465881871\n'
    assert (answer.status, answer.err) == (0, "")


def test_busctl_speaks_json(machine: Machine, ask: Ask) -> None:
    answer = ask(machine, f"busctl --json=short call {BUS} GetStatus")

    assert answer.out == (
        '{"type":"xdssx","data":[1700000000,0.0,"UPDATE_STATUS_UPDATED_NEED_REBOOT","4152.2.0",465881871]}\n'
    )


def test_a_restarted_engine_knows_only_that_something_is_staged(machine: Machine, ask: Ask) -> None:
    answer = ask(machine, "sudo -n systemctl restart update-engine && update_engine_client -status")

    assert answer.out == STAGED.replace("1700000000", "0").replace("4152.2.0", "0.0.0").replace("465881871", "0")
    assert ask(machine, "test -e /var/run/update_engine_autoupdate_completed").status == 0


def test_a_denied_client_prints_null_and_succeeds(make_machine: MakeMachine, ask: Ask) -> None:
    machine = make_machine(faults=HostFaults(bus=BusFault.DENIED))

    answer = ask(machine, "update_engine_client -status")

    assert (answer.status, answer.out) == (0, UNKNOWN)
    assert "access denied" in answer.err
    assert (ask(machine, GET_STATUS).status, ask(machine, GET_STATUS).err) == (1, "Call failed: Access denied\n")
    assert ask(machine, "sudo -n update_engine_client -status").out == STAGED


def test_the_bus_admits_root_and_core_only(machine: Machine, ask: Ask) -> None:
    assert ask(machine, "update_engine_client -status", user="nobody").out == UNKNOWN
    assert ask(machine, "update_engine_client -status", user="root").out == STAGED


def test_an_absent_bus_takes_the_client_half_a_minute(make_machine: MakeMachine, ask: Ask) -> None:
    machine = make_machine(faults=HostFaults(bus=BusFault.ABSENT), speed=100)

    began = time.monotonic()
    answer = ask(machine, "update_engine_client -status")

    assert time.monotonic() - began >= 0.3
    assert (answer.status, answer.out) == (1, "")
    assert ask(machine, GET_STATUS).err == (
        "Call failed: The name com.coreos.update1 was not provided by any .service files\n"
    )


def test_timeout_cuts_off_what_takes_too_long(make_machine: MakeMachine, ask: Ask) -> None:
    machine = make_machine(faults=HostFaults(bus=BusFault.ABSENT))

    assert ask(machine, "timeout 12 update_engine_client -status; echo $?").out == "124\n"
    assert ask(machine, "timeout 60 update_engine_client -status; echo $?").out == "1\n"
    assert ask(machine, "timeout 5 nosuch").status == 127


def test_a_missing_client_is_127_and_busctl_still_answers(make_machine: MakeMachine, ask: Ask) -> None:
    machine = make_machine(faults=HostFaults(client_missing=True))

    answer = ask(machine, "update_engine_client -status")

    assert (answer.status, answer.err) == (127, "bash: line 1: update_engine_client: command not found\n")
    assert ask(machine, "command -v update_engine_client").status == 1
    assert ask(machine, GET_STATUS).status == 0


def test_a_stopped_engine_does_not_answer(machine: Machine, ask: Ask) -> None:
    ask(machine, "sudo -n systemctl stop update-engine")

    assert ask(machine, f"systemctl is-active update-engine; {GET_STATUS}").out == "inactive\n"


def test_an_idle_engine_can_be_told_to_update(make_machine: MakeMachine, ask: Ask) -> None:
    machine = make_machine(engine=UpdateEngine(available="4152.2.0"))

    answer = ask(machine, "update_engine_client -update")

    assert answer.status == 0
    assert "CURRENT_OP=UPDATE_STATUS_UPDATED_NEED_REBOOT\nNEW_VERSION=4152.2.0\n" in answer.out
    assert ask(machine, "test -e /run/reboot-required").status == 0


def test_a_check_that_finds_nothing_ends_idle(make_machine: MakeMachine, ask: Ask) -> None:
    machine = make_machine(engine=UpdateEngine())

    answer = ask(machine, f"busctl call {BUS} AttemptUpdate; {GET_STATUS}; sleep 10; {GET_STATUS}")

    first, last = answer.out.splitlines()
    assert "CHECKING_FOR_UPDATE" in first
    assert '"UPDATE_STATUS_IDLE" "0.0.0" 0' in last


def test_reset_hides_the_staged_version_but_keeps_it(machine: Machine, ask: Ask) -> None:
    assert ask(machine, f"busctl call {BUS} ResetStatus; {GET_STATUS}").out.startswith("xdssx")
    assert machine.engine.operation is UpdateOperation.IDLE
    assert machine.engine.staged == "4152.2.0"


# Files.


def test_files_tell_about_the_host(machine: Machine, ask: Ask) -> None:
    answer = ask(
        machine,
        "cat /proc/sys/kernel/random/boot_id /etc/machine-id /etc/hostname; . /etc/os-release; echo $VERSION_ID $ID;"
        " grep -h GROUP= /usr/share/flatcar/update.conf /etc/flatcar/update.conf; uname -r; hostname; id -un; id -u",
    )

    assert answer.out.splitlines() == [
        machine.boot_id,
        machine.machine_id,
        "worker-1",
        "4081.2.0 flatcar",
        "GROUP=stable",
        "GROUP=stable",
        machine.kernel_version,
        "worker-1",
        "core",
        "500",
    ]


@pytest.mark.parametrize(
    "path", ["/usr/share/coreos/update.conf", "/run/update-engine/coordinator.conf", "/etc/shadow"]
)
def test_what_is_not_there_is_not_there(path: str, machine: Machine, ask: Ask) -> None:
    answer = ask(machine, f"cat {path}")

    assert (answer.status, answer.out, answer.err) == (1, "", f"cat: {path}: No such file or directory\n")


def test_locksmithd_leaves_its_state_in_a_file(make_machine: MakeMachine, ask: Ask) -> None:
    answer = ask(
        make_machine(locksmithd=True), "cat /run/update-engine/coordinator.conf; systemctl is-active locksmithd"
    )

    assert answer.out == "NAME=locksmithd\nSTRATEGY=reboot\nSTATE=running\nactive\n"


# systemctl.


@pytest.mark.parametrize(
    ("command", "out", "status"),
    [
        ("is-active locksmithd", "inactive\n", 3),
        ("is-active update-engine.service", "active\n", 0),
        ("is-active nosuch", "inactive\n", 4),
        ("is-active --quiet update-engine", "", 0),
        ("is-enabled locksmithd", "masked\n", 1),
        ("is-enabled update-engine", "enabled\n", 0),
        ("is-enabled nosuch", "not-found\n", 4),
        ("is-system-running", "running\n", 0),
        ("show -p ActiveState -p LoadState locksmithd", "LoadState=masked\nActiveState=inactive\n", 0),
        ("show --property=ActiveState --value update-engine", "active\n", 0),
        ("show -pLoadState nosuch", "LoadState=not-found\n", 0),
    ],
)
def test_systemctl_answers(command: str, out: str, status: int, machine: Machine, ask: Ask) -> None:
    answer = ask(machine, f"systemctl {command}")

    assert (sorted(answer.out.splitlines()), answer.status) == (sorted(out.splitlines()), status)


def test_units_change_for_root_only(machine: Machine, ask: Ask) -> None:
    refused = ask(machine, "systemctl unmask locksmithd")
    assert (refused.status, refused.err) == (
        1,
        "Failed to unmask locksmithd.service: Interactive authentication required.\n",
    )
    assert ask(machine, "sudo -n systemctl start locksmithd").err.endswith("is masked.\n")
    script = (
        "sudo -n systemctl unmask locksmithd; sudo -n systemctl enable --now locksmithd; systemctl is-active locksmithd"
    )
    assert ask(machine, script).out == "active\n"
    assert ask(machine, "sudo -n systemctl start nosuch").status == 5


def test_only_root_may_reboot(machine: Machine, ask: Ask) -> None:
    for command in ("systemctl reboot", "reboot", "shutdown -r now"):
        answer = ask(machine, command)
        assert (answer.status, answer.err) == (1, "Call to Reboot failed: Interactive authentication required.\n")
    assert machine.reboots == 0


# sudo.


@pytest.mark.parametrize(
    ("fault", "command", "out", "err", "status"),
    [
        (SudoFault.NONE, "sudo -n -l systemctl reboot", "/usr/bin/systemctl reboot\n", "", 0),
        (SudoFault.NONE, "sudo -n id -un", "root\n", "", 0),
        (SudoFault.NONE, "sudo -H -S -n -u root /bin/sh -c 'echo ok; id -u'", "ok\n0\n", "", 0),
        (SudoFault.NONE, "sudo -n nosuch", "", "sudo: nosuch: command not found\n", 1),
        (SudoFault.PASSWORD, "sudo -n systemctl reboot", "", "sudo: a password is required\n", 1),
        (SudoFault.PASSWORD, "sudo -n -l systemctl reboot", "", "sudo: a password is required\n", 1),
        (
            SudoFault.REFUSED,
            "sudo -n systemctl reboot",
            "",
            "Sorry, user core is not allowed to execute '/usr/bin/systemctl reboot' as root on worker-1.\n",
            1,
        ),
        (SudoFault.REFUSED, "sudo -n -l systemctl reboot", "", "", 1),
    ],
)
def test_sudo(
    fault: SudoFault, command: str, out: str, err: str, status: int, make_machine: MakeMachine, ask: Ask
) -> None:
    machine = make_machine(faults=HostFaults(sudo=fault))

    answer = ask(machine, command)

    assert (answer.out, answer.err, answer.status) == (out, err, status)
    assert machine.running


# Small programs.


@pytest.mark.parametrize(
    ("script", "out"),
    [
        ("printf 'b\\na\\nab\\n' | grep a", "a\nab\n"),
        ("printf 'b\\na\\n' | grep -v a", "b\n"),
        ("printf 'A\\nb\\n' | grep -ic a", "1\n"),
        ("printf 'x=1\\n' | grep -q '^x=' && echo yes", "yes\n"),
        ("printf 'a+b\\n' | grep 'a+b'; echo aab | grep -E 'a+b'; echo 'a+b' | grep -F a+b", "a+b\naab\na+b\n"),
        ("echo abc=1 | grep -o '[a-z]*='", "abc=\n"),
        ("printf '1\\n2\\n3\\n' | head -n 1; printf '1\\n2\\n3\\n' | tail -2", "1\n2\n3\n"),
        ("printf abcdef | head -c 2; printf abcdef | tail -c 3; printf ab | tail -c 9", "abdefab"),
        ("echo hello | tr a-z A-Z; echo a:b | tr -d :", "HELLO\nab\n"),
        ("echo a=b=c | cut -d= -f2; echo plain | cut -d= -f2", "b\nplain\n"),
        ("printf 'a\\nb\\n' | wc -l", "2\n"),
        ("echo x | sudo -n tee /etc/flatcar/update.conf; cat /etc/flatcar/update.conf", "x\nx\n"),
        ("env A=1 id -un; nohup echo b; which id nosuch", "core\nb\n/usr/bin/id\n"),
        ("touch /tmp/a && [ -f /tmp/a ] && rm /tmp/a && [ ! -e /tmp/a ] && echo gone", "gone\n"),
        ("[ -d /etc ] && [ -x /usr/bin/busctl ] && [ -s /etc/os-release ] && echo yes", "yes\n"),
        ("journalctl -u update-engine -n 5", "-- No entries --\n"),
    ],
)
def test_small_programs(script: str, out: str, machine: Machine, ask: Ask) -> None:
    assert ask(machine, script).out == out


def test_the_journal_keeps_what_was_done_as_root(machine: Machine, ask: Ask) -> None:
    ask(machine, "sudo -n systemctl stop update-engine")

    assert "COMMAND=systemctl stop update-engine" in ask(machine, "journalctl -u sudo").out


def test_times_are_the_clocks(machine: Machine, ask: Ask) -> None:
    now, since, uptime = ask(machine, "date +%s; uptime -s; cut -d. -f1 /proc/uptime").out.splitlines()

    assert abs(int(now) - time.time()) < 60
    assert since == f"{machine.booted_at:%Y-%m-%d %H:%M:%S}"
    assert 0 <= int(uptime) < 60


def test_who_is_logged_in_until_the_host_goes_down(make_machine: MakeMachine, ask: Ask) -> None:
    machine = make_machine(faults=HostFaults(users=("core pts/0",)))
    assert ask(machine, "who").out.split()[:2] == ["core", "pts/0"]
    machine.reboots = 1
    assert ask(machine, "who").out == ""


def test_wall_keeps_who_said_what(machine: Machine, ask: Ask) -> None:
    message = 'it\'s "about" $(time)\\n'
    assert ask(machine, wall_command(message)).status == 0
    assert machine.told == [f"root: {message}"]


def test_wall_is_said_as_the_user_where_sudo_refuses(make_machine: MakeMachine, ask: Ask) -> None:
    machine = make_machine(faults=HostFaults(sudo=SudoFault.REFUSED))
    assert ask(machine, wall_command("go")).status == 0
    assert machine.told == ["core: go"]
