"""rollout's own scripts: a simulated host and a real shell with the same programs give the same answer, to the byte.

What the host's programs answer is recorded while its shell runs a script. The real shell is given stubs that answer the
same to the same words and know no others, and the host's files in a folder.
"""

import asyncio
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rollout.adapters.ansible.executor import _only_in
from rollout.gather.doctor.examination import DOCTOR_COMMAND
from rollout.gather.hosts.boot import BOOT_COMMAND
from rollout.gather.hosts.probe_command import PROBE_COMMAND, REBOOT_COMMAND
from rollout.gather.hosts.users import WHO_COMMAND, wall_command
from rollout.gather.updates import CHECK_COMMAND
from rollout.lab.hosts import files
from rollout.lab.hosts.commands.table import HOST_PROGRAMS
from rollout.lab.hosts.faults import BusFault, HostFaults, SudoFault
from rollout.lab.hosts.machine import Machine
from rollout.lab.hosts.process import Buffer, Input, Process, Program, Streams
from rollout.lab.hosts.shell import Shell

MakeMachine = Callable[..., Machine]
# What the shell of the folder's user has of its own: not to be stubbed.
BUILTINS = {"echo", "printf", "[", "test", "true", "false", "sh", "bash"}
PATHS = re.compile(r"(?<![\w/.])/(?=(?:etc|usr|run|proc)/)")
NOT_FOUND = re.compile(r"^\S*sh: (?:\S+ )*?(\S+): (?:command )?not found$", re.MULTILINE)
FILES = (
    "/etc/os-release",
    "/usr/lib/os-release",
    "/etc/machine-id",
    "/usr/share/flatcar/update.conf",
    "/etc/flatcar/update.conf",
    "/proc/sys/kernel/random/boot_id",
    "/run/systemd/shutdown/scheduled",
    "/run/reboot-required",
)
SCRIPTS = {
    "probe": PROBE_COMMAND,
    "check": CHECK_COMMAND,
    "boot": BOOT_COMMAND,
    "doctor": DOCTOR_COMMAND,
    "reboot": REBOOT_COMMAND,
    "who": WHO_COMMAND,
    "wall": wall_command('it\'s "about" $(time)'),
}
STATES = {
    "healthy": HostFaults(),
    **{f"sudo-{fault}": HostFaults(sudo=fault, bus=BusFault.DENIED) for fault in SudoFault},
    "bus-absent": HostFaults(bus=BusFault.ABSENT),
    "client-missing": HostFaults(client_missing=True),
    "inhibited": HostFaults(inhibited=True),
    "users": HostFaults(users=("core pts/0", "ada tty1")),
    "who-missing": HostFaults(missing=("who",)),
    "shutdown-scheduled": HostFaults(shuts_down_after_seconds=1e6),
}
SHELLS = [shell for shell in ("sh", "bash", "busybox") if shutil.which(shell)]


@dataclass(frozen=True)
class Spoken:
    """What a program, or a script, said."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Recorded:
    """What a host answered to a script, and its programs on the way, by their words."""

    answer: Spoken
    programs: dict[tuple[str, ...], Spoken]


def record(machine: Machine, script: str, user: str) -> Recorded:
    """Run the script on the simulated host."""
    heard: dict[tuple[str, ...], Spoken] = {}

    def recording(program: Program) -> Program:
        async def run(process: Process) -> int:
            out, err = Buffer(), Buffer()
            streams = Streams(process.streams.stdin, out, err)
            status = await program(replace(process, streams=streams, programs=HOST_PROGRAMS))
            heard[process.argv] = Spoken(status, out.text, err.text)
            process.streams.out.write(out.text)
            process.streams.err.write(err.text)
            return status

        return run

    async def run() -> Spoken:
        out, err = Buffer(), Buffer()
        programs = {
            name: program if name in BUILTINS else recording(program) for name, program in HOST_PROGRAMS.items()
        }
        process = Process(machine, user, ("sh",), Streams(Input.of(""), out, err), {}, programs)
        return Spoken(await Shell(process).run(script), out.text, err.text)

    return Recorded(asyncio.run(run()), heard)


def write_host(folder: Path, texts: dict[str, str | None], programs: dict[tuple[str, ...], Spoken]) -> None:
    """The host's files below a folder, and a stub for each program, which knows what the host's one was asked."""
    for path, text in texts.items():
        if text is not None:
            file = folder / path.removeprefix("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    (folder / "bin").mkdir()
    for name in {words[0] for words in programs} | {"timeout"}:
        cases = [
            f"{shlex.quote(PATHS.sub(f'{folder}/', ' '.join(words[1:])))}) printf %s {shlex.quote(said.out)};"
            f" printf %s {shlex.quote(said.err)} >&2; exit {said.status};;"
            for words, said in programs.items()
            if words[0] == name
        ]
        stub = folder / "bin" / name
        stub.write_text("\n".join(("#!/bin/sh", 'case "$*" in', *cases, "*) exit 99;;", "esac")))
        stub.chmod(0o755)


def in_real_shell(shell: str, folder: Path, script: str) -> Spoken:
    """Run the script where the host's files and programs are those of the folder."""
    words = [str(shutil.which(shell)), *(["sh"] if shell == "busybox" else []), "-c", PATHS.sub(f"{folder}/", script)]
    done = subprocess.run(
        words, env={"PATH": str(folder / "bin")}, capture_output=True, text=True, timeout=60, check=False
    )
    return Spoken(done.returncode, done.stdout, done.stderr)


def alike(spoken: Spoken) -> Spoken:
    """Shells word it in their own ways that there is no such program, and where."""
    return replace(spoken, err=NOT_FOUND.sub(r"\1: not found", spoken.err))


# A sudo that hangs is cut off by the scripts that only ask: the reboot waits for it as long as the caller does.
CASES = [
    *(("healthy", script, shell) for script in SCRIPTS for shell in SHELLS),
    *(
        (state, script, "sh")
        for state in list(STATES)[1:]
        for script in ("probe", "check", "reboot")
        if (state, script) != ("sudo-hangs", "reboot")
    ),
]


@pytest.mark.parametrize(("state", "script", "shell"), CASES)
def test_a_real_shell_answers_the_same(
    state: str, script: str, shell: str, tmp_path: Path, make_machine: MakeMachine
) -> None:
    machine = make_machine(faults=STATES[state], locksmithd=state == "inhibited")
    texts = {path: files.read(machine, path) for path in FILES}

    recorded = record(machine, SCRIPTS[script], "core")
    write_host(tmp_path, texts, recorded.programs)

    assert alike(in_real_shell(shell, tmp_path, SCRIPTS[script])) == alike(recorded.answer)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("boot", ["this", "another"])
def test_a_command_for_one_boot_alone(boot: str, shell: str, tmp_path: Path, make_machine: MakeMachine) -> None:
    machine = make_machine()
    texts = {path: files.read(machine, path) for path in FILES}
    script = _only_in(machine.boot_id if boot == "this" else machine.boot_id[::-1], REBOOT_COMMAND)

    recorded = record(machine, script, "root")
    write_host(tmp_path, texts, recorded.programs)

    assert in_real_shell(shell, tmp_path, script) == recorded.answer
    assert (("systemctl", "reboot") in recorded.programs) == (boot == "this")
