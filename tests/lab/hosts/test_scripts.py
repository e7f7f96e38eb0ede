"""rollout's own scripts: a simulated host and a real shell with the same programs give the same answer, to the byte.

What the host's programs answer is recorded while it answers a script. The real shell is given stubs
that answer the same to the same words and know no others, and the host's files in a folder.
"""

import asyncio
import random
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from rollout.adapters.ansible.executor import _only_in_boot
from rollout.gather.hosts.probe import BOOT_COMMAND
from rollout.gather.hosts.probe_command import PROBE_COMMAND, REBOOT_COMMAND, Probe
from rollout.gather.hosts.rollback_command import BOOT_RUNNING_COMMAND, rollback_command
from rollout.gather.updates import CHECK_COMMAND
from rollout.lab.clock import LabClock
from rollout.lab.hosts.commands import answer
from rollout.lab.hosts.engine import System
from rollout.lab.hosts.faults import HEALTHY, BusFault, HostFaults, RebootFault, SudoFault
from rollout.lab.hosts.machine import HostCommand, HostSettings, Machine
from rollout.lab.hosts.programs import PROGRAMS
from rollout.lab.hosts.session import (
    TIMED_OUT,
    CommandOutput,
    Program,
    ShellSession,
    Words,
    read_file,
)
from rollout.model.detection import Source

Programs = dict[Words, list[CommandOutput]]
PATHS = re.compile(r"(?<![\w/.])/(?=(?:etc|usr|run|var|proc)/)")
NOT_FOUND = re.compile(r"^\S*sh: (?:\S+ )*?(\S+): (?:command )?not found$", re.MULTILINE)
NOW = re.compile(r"NOW=\d*")
FILES = (
    "/etc/os-release",
    "/usr/lib/os-release",
    "/etc/machine-id",
    "/usr/share/flatcar/update.conf",
    "/etc/flatcar/update.conf",
    "/proc/sys/kernel/random/boot_id",
    "/proc/uptime",
    "/run/systemd/shutdown/scheduled",
    "/run/reboot-required",
)
SCRIPTS = {
    "probe": PROBE_COMMAND,
    "every source": (
        Probe(
            (Source.REBOOT_REQUIRED, Source.RPM_OSTREE, Source.COMMAND), "echo 'it''s' a; cat /none"
        ).command
    ),
    "bootc": Probe((Source.BOOTC,)).command,
    "check": CHECK_COMMAND,
    "boot": BOOT_COMMAND,
    "doctor": Probe(for_doctor=True).command,
    "reboot": REBOOT_COMMAND,
    "rollback probe": Probe((Source.ROLLBACK,)).command,
    "rollback": rollback_command(REBOOT_COMMAND),
    "undo": BOOT_RUNNING_COMMAND,
}
STATES = {
    "healthy": HostFaults(),
    **{
        f"sudo-{fault}": HostFaults(sudo=fault, bus=BusFault.DENIED) for fault in (None, *SudoFault)
    },
    "bus-absent": HostFaults(bus=BusFault.ABSENT),
    "client-missing": HostFaults(missing=("update_engine_client",)),
    "sudo-missing": HostFaults(missing=("sudo",), bus=BusFault.DENIED),
    "inhibited": HostFaults(inhibited=True),
    "users": HostFaults(users=("core pts/0", "ada tty1")),
    "who-missing": HostFaults(missing=("who",)),
    "shutdown-scheduled": HostFaults(shuts_down_after_seconds=1e6),
}
SHELLS = [shell for shell in ("sh", "bash", "busybox") if shutil.which(shell)]
NONE = "cat: /none: No such file or directory\n"
# What the folder has of its own, for all scripts.
OWN = {"cat", "echo", "test", "true", "false"}
TIMEOUT = (
    'shift; command -v "$1" >/dev/null || '
    """{ echo "timeout: failed to run command '$1': No such file or directory" >&2; exit 127; };
    exec "$@\"
    """
)


def make_machine(
    *,
    faults: HostFaults = HEALTHY,
    locksmithd: bool = False,
    commands: Mapping[str, HostCommand] | None = None,
    system: System | None = None,
    previous: str = "4081.1.0",
) -> Machine:
    settings = HostSettings(
        faults=faults,
        locksmithd=locksmithd,
        commands=commands or {},
        # A file that is written down does not change with the time.
        files={"/proc/uptime": "100.00 90.00\n"},
        system=system,
        previous=previous,
    )
    rng = random.Random(1)  # noqa: S311 - repeatable on purpose
    return Machine("worker-1", "127.0.0.2", settings, clock=LabClock(1000), rng=rng)


def ask(machine: Machine, line: str) -> CommandOutput:
    """Run a command line to its end, as an SSH session would."""
    return asyncio.run(answer(ShellSession(machine, "core", PROGRAMS), line))


def record(machine: Machine, script: str, user: str = "core") -> tuple[CommandOutput, Programs]:
    """What the simulated host answers to the script, and its programs on the way, by their words."""
    heard: Programs = {}

    def recording(program: Program) -> Program:
        async def run(session: ShellSession, words: Words) -> CommandOutput:
            answers = heard.setdefault(words, [])
            answers.append(CommandOutput(TIMED_OUT))
            answers[-1] = await program(replace(session, programs=PROGRAMS), words)
            return answers[-1]

        return run

    async def run() -> CommandOutput:
        programs = {
            name: program if name in OWN else recording(program)
            for name, program in PROGRAMS.items()
        }
        return await answer(ShellSession(machine, user, programs), script)

    return asyncio.run(run()), heard


def in_turn(said: list[CommandOutput], asked: Path) -> str:
    """The body of a stub that gives these answers one after another, and then the last again."""
    bodies = [
        f"printf %s {shlex.quote(one.out)}; printf %s {shlex.quote(one.err)} >&2; exit {one.status}"
        for one in said
    ]
    *earlier, last = bodies if len(set(said)) > 1 else bodies[-1:]
    marks = [f"{asked}-{number}" for number in range(len(earlier))]
    first = [
        f"[ -e {mark} ] || {{ : >{mark}; {body}; }}\n"
        for mark, body in zip(marks, earlier, strict=True)
    ]
    return "".join((*first, last))


def write_host(folder: Path, machine: Machine, programs: Programs, user: str = "core") -> None:
    """The host's files below a folder, and a stub for each program, which knows what the host's one
    was asked.
    """
    for path in FILES:
        if (text := read_file(machine, path)) is not None:
            file = folder / path.removeprefix("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    (folder / "bin").mkdir()
    stubs = {
        "timeout": TIMEOUT,
        "id": f"echo {0 if user == 'root' else 500}",
        "tty": "echo 'not a tty'; exit 1",
    }
    # What sudo runs is there too, and the scripts look for it.
    by_sudo = {"cgpt"} if machine.system is System.FLATCAR else set[str]()
    for name in by_sudo.union(words[0] for words in programs):
        cases = [
            f"{shlex.quote(PATHS.sub(f'{folder}/', ' '.join(words[1:])))})"
            f" {in_turn(said, folder / f'asked-{number}')} ;;"
            for number, (words, said) in enumerate(programs.items())
            if words[0] == name
        ]
        stubs[name] = "\n".join(('case "$*" in', *cases, "*) exit 99;;", "esac"))
    if machine.system is System.FEDORA_BOOTC:
        # Only sudo starts it, but the script looks for it.
        stubs["bootc"] = "exit 99"
    for name, text in stubs.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / "bin" / name).chmod(0o755)
    for name in ("cat", "grep", "head", "tail", "tr", "sh"):
        (folder / "bin" / name).symlink_to(str(shutil.which(name)))


def in_real_shell(shell: str, folder: Path, script: str) -> CommandOutput:
    """Run the script where the host's files and programs are those of the folder."""
    words = [
        str(shutil.which(shell)),
        *(["sh"] if shell == "busybox" else []),
        "-c",
        PATHS.sub(f"{folder}/", script),
    ]
    done = subprocess.run(
        words,
        env={"PATH": str(folder / "bin")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return CommandOutput(done.returncode, done.stdout.replace(f"{folder}/", "/"), done.stderr)


def alike(said: CommandOutput) -> CommandOutput:
    """Shells word it in their own ways that there is no such program, and time goes on."""
    lines = [line for line in said.err.splitlines() if "date" not in line]
    err = NOT_FOUND.sub(
        r"\1: not found", re.sub(r"^\S+ line \d+: ", "sh: ", "\n".join(lines), flags=re.MULTILINE)
    )
    return replace(said, out=NOW.sub("NOW=", said.out), err=err)


# A sudo that hangs is cut off by the scripts that only ask: the reboot waits for it as long as the
# caller does.
CASES = [
    *(("healthy", script, shell) for script in SCRIPTS for shell in SHELLS),
    *(
        (state, script, "sh")
        for state in list(STATES)[1:]
        for script in ("probe", "doctor", "check", "reboot", "rollback probe", "rollback", "undo")
        if (state, script) not in {("sudo-hangs", name) for name in ("reboot", "rollback", "undo")}
    ),
]


@pytest.mark.parametrize(("state", "script", "shell"), CASES)
def test_a_real_shell_answers_the_same(state: str, script: str, shell: str, tmp_path: Path) -> None:
    system = System.FEDORA_BOOTC if script == "bootc" else None
    machine = make_machine(faults=STATES[state], locksmithd=state == "inhibited", system=system)
    said, programs = record(machine, SCRIPTS[script])
    write_host(tmp_path, machine, programs)
    assert alike(in_real_shell(shell, tmp_path, SCRIPTS[script])) == alike(said)


# A rollback may run again after a crash, and is undone if the host did not reboot.
STEPS = (
    ("rollback", True),
    ("rollback", True),
    ("rollback probe", True),
    ("undo", False),
    ("undo", False),
)


@pytest.mark.parametrize(
    ("system", "previous"),
    [
        (System.FLATCAR, "4081.1.0"),
        (System.FEDORA_COREOS, "4081.1.0"),
        (System.FEDORA_COREOS, ""),
        (System.FEDORA_BOOTC, "4081.1.0"),
        (System.FEDORA_BOOTC, ""),
    ],
)
def test_a_rollback_is_chosen_once_and_undone(
    system: System, previous: str, tmp_path: Path
) -> None:
    faults = HostFaults(reboot=RebootFault.IGNORED)
    machine = make_machine(system=system, previous=previous, faults=faults)
    machine.update_engine.boot(machine.os_version)
    for number, (script, boots_other) in enumerate(STEPS):
        said, programs = record(machine, SCRIPTS[script])
        folder = tmp_path / str(number)
        folder.mkdir()
        write_host(folder, machine, programs)
        assert alike(in_real_shell("sh", folder, SCRIPTS[script])) == alike(said)
        assert machine.boots_other is (boots_other and bool(previous))


@pytest.mark.parametrize("is_queued", [False, True])
@pytest.mark.parametrize("system", [one for one in System if one is not System.UBUNTU])
def test_an_update_that_was_staged_since_the_last_question_does_not_boot(
    system: System, tmp_path: Path, *, is_queued: bool
) -> None:
    machine = make_machine(system=system)
    machine.boots_other = is_queued
    assert machine.update_engine.staged
    chosen, programs = record(machine, SCRIPTS["rollback"])
    assert chosen.status == 1
    assert chosen.err == "another version has been staged, and would boot instead\n"
    assert machine.running
    write_host(tmp_path, machine, programs)
    assert alike(in_real_shell("sh", tmp_path, SCRIPTS["rollback"])) == alike(chosen)
    # The undo leaves it: it boots next, as without the rollback.
    left, programs = record(machine, SCRIPTS["undo"])
    (tmp_path / "undo").mkdir()
    write_host(tmp_path / "undo", machine, programs)
    assert alike(in_real_shell("sh", tmp_path / "undo", SCRIPTS["undo"])) == alike(left)
    assert machine.boots_other is is_queued


# A host whose deployments are in a file, by the words that rpm-ostree has for whether each is booted.
# `rpm-ostree rollback` puts the deployment after the booted one first, or else the booted one.
DEPLOYMENTS = """
first() {{ read -r one _ <{file}; echo "[ $one ]"; }}
case "$*" in
  *'[0].booted'*) first ;;
  *'[0].staged'*) echo '[ false ]' ;;
  *'[*].booted'*) echo "[ $(cat {file}) ]" | sed 's/ \\([ft]\\)/, \\1/2g' ;;
  rollback)
    case $(cat {file}) in
      *'true '*) echo "false $(cat {file})" >{file} ;;
      *) echo 'true false' >{file} ;;
    esac ;;
  'admin set-default 1') echo 'true false false' >{file} ;;
  *) exit 99 ;;
esac
"""


@pytest.mark.parametrize(
    ("listed", "tool", "status"),
    [
        ("false true", "ostree", 0),
        ("false true false", "ostree", 0),
        ("true false false", "ostree", 0),
        # Without the tool, the host is left as it was.
        ("false true false", "none", 127),
        ("false false true false", "ostree", 1),
    ],
)
def test_an_undo_boots_the_booted_one_of_any_deployments(
    listed: str, tool: str, status: int, tmp_path: Path
) -> None:
    file = tmp_path / "deployments"
    file.write_text(f"{listed}\n")
    (tmp_path / "bin").mkdir()
    text = f"#!/bin/sh\nPATH=$PATH:/bin:/usr/bin\n{DEPLOYMENTS.format(file=file)}\n"
    for name in ("rpm-ostree", tool):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "bin" / "id").write_text("#!/bin/sh\necho 0\n")
    (tmp_path / "bin" / "id").chmod(0o755)
    (tmp_path / "bin" / "tr").symlink_to(str(shutil.which("tr")))
    undone = in_real_shell("sh", tmp_path, SCRIPTS["undo"])
    assert undone.status == status, undone.err
    assert file.read_text().startswith("true") is not bool(status)
    if status:
        assert file.read_text() == f"{listed}\n"
        assert undone.err


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("boot", ["this", "another"])
def test_a_command_for_one_boot_alone(boot: str, shell: str, tmp_path: Path) -> None:
    machine = make_machine()
    boot_id = machine.boot_id if boot == "this" else machine.boot_id[::-1]
    script = _only_in_boot(boot_id, REBOOT_COMMAND)
    said, programs = record(machine, script, "root")
    write_host(tmp_path, machine, programs, "root")
    assert in_real_shell(shell, tmp_path, script) == said
    assert (("systemctl", "reboot") in programs) == (boot == "this")


# What needs no programs of a host: commands one after another, and what a scenario has it answer.


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("false || echo 'a \"b\"' && echo c", CommandOutput(0, 'a "b"\nc\n')),
        ("false && echo no || false", CommandOutput(1)),
        (
            'cat /none;\n. /etc/os-release; echo $ID "$VERSION"',
            CommandOutput(0, "flatcar 4081.2.0\n", NONE),
        ),
        ("test -e /run/none -o -e /etc/os-release && echo yes", CommandOutput(0, "yes\n")),
        ("test -e /run/none -o -e /etc/none", CommandOutput(1)),
        ("/bin/sh -c 'echo one; false'", CommandOutput(1, "one\n")),
    ],
)
def test_plain_commands_one_after_another(line: str, expected: CommandOutput) -> None:
    assert ask(make_machine(), line) == expected


@pytest.mark.parametrize(
    "line", ["ls | wc -l", "echo 'open", "(id)", "echo `id`; sleep", "echo $(id)", "echo a >b"]
)
def test_what_takes_a_shell_is_refused_with_what_to_do(line: str) -> None:
    said = ask(make_machine(), line)
    assert said.status != 0
    assert "`commands`" in said.err or "command not found" in said.err


def test_a_scenario_says_what_else_a_host_answers() -> None:
    commands = {
        "own | way": HostCommand(output="done\n", exit=3),
        "go-down": HostCommand(reboots=True),
    }
    machine = make_machine(commands=commands)
    assert ask(machine, "own | way\n") == CommandOutput(3, "done\n")
    assert machine.running
