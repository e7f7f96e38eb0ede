"""A Flatcar host has two USR partitions, a Fedora CoreOS host two deployments."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from rollout.gather.hosts.probe_command import READ_OTHER_SLOT
from rollout.lab.hosts.engine import System, os_release
from rollout.lab.hosts.machine import Machine
from rollout.lab.hosts.session import TIMED_OUT, CommandOutput, Program, ShellSession, Words

_LABELS: Final = ("USR-A", "USR-B")
_DEVICES: Final = ("/dev/vda3", "/dev/vda4")
_STAGED_SINCE: Final = CommandOutput(
    1, err="another version has been staged, and would boot instead\n"
)
_FIRST_NUMBER = 3
_FIRST_SECTOR = 270_336
_SECTORS = 2_097_152


class _Flags(Struct, frozen=True):
    priority: int
    tries: int
    successful: int

    def __str__(self) -> str:
        return f"priority={self.priority} tries={self.tries} successful={self.successful}"


def booted_device(machine: Machine) -> str:
    return _DEVICES[machine.booted_slot]


def _other_device(machine: Machine) -> str:
    return _DEVICES[1 - machine.booted_slot]


def _flags_of(machine: Machine, device: str) -> _Flags:
    boots_other = machine.boots_other or bool(machine.update_engine.staged)
    if device == booted_device(machine):
        return _Flags(1 if boots_other else 2, 0, 1)
    if machine.update_engine.staged:
        return _Flags(2, 1, 0)
    return _Flags(2 if boots_other else 1, 0, 1 if machine.previous_version else 0)


async def _rootdev(session: ShellSession, _words: Words) -> CommandOutput:
    return CommandOutput(out=f"{booted_device(session.machine)}\n")


async def _cgpt(session: ShellSession, words: Words) -> CommandOutput:
    verb = words[1]
    device = words[-1]
    if session.user != "root":
        return CommandOutput(1, err=f"ERROR: cgpt {verb}: Can't open /dev/vda: Permission denied\n")
    if verb == "find":
        return CommandOutput(out="".join(f"{name}\n" for name in _DEVICES))
    if device not in _DEVICES:
        error = f"ERROR: cgpt {verb}: Can't open {device}: No such file or directory\n"
        return CommandOutput(1, err=error)
    if verb == "prioritize":
        session.machine.boots_other = device == _other_device(session.machine)
        return CommandOutput()
    index = _DEVICES.index(device)
    place = f"{_FIRST_SECTOR + index * _SECTORS:>12}{_SECTORS:>12}{_FIRST_NUMBER + index:>8}"
    lines = (
        f"{'start':>12}{'size':>12}{'part':>8}  contents",
        f'{place}  Label: "{_LABELS[index]}"',
        f"{'':32}  Type: Alias for flatcar-rootfs",
        f"{'':32}  Attr: {_flags_of(session.machine, device)}\n",
    )
    return CommandOutput(out="\n".join(lines))


async def _unshare(session: ShellSession, words: Words) -> CommandOutput:
    if session.user != "root":
        return CommandOutput(1, err="unshare: unshare failed: Operation not permitted\n")
    machine = session.machine
    progress = "NEXT_OPERATION=-1\nFAILURES=0\n"
    held = machine.update_engine.staged or machine.previous_version
    if words[-1] != _other_device(machine) or not held:
        error = f"mount: /mnt: wrong fs type, bad option, bad superblock on {words[-1]}.\n"
        return CommandOutput(32, progress, error)
    return CommandOutput(out=progress + os_release(held, System.FLATCAR))


async def other_slot(session: ShellSession) -> CommandOutput:
    if not session.has("cgpt"):
        return CommandOutput()
    booted, found, other = await _partitions(session, limit=5)
    shown = await _as_root(session, "cgpt", "show", other, limit=5)
    script = ("sh", "-c", READ_OTHER_SLOT, "sh", other)
    read = await _as_root(session, "unshare", "--mount", *script, limit=9)
    out = f"BOOTED={booted}\nOTHER={other}\n{shown.out}{read.out}"
    return CommandOutput(read.status, out, found.err + shown.err + read.err)


async def may_roll_back(session: ShellSession) -> CommandOutput:
    output = CommandOutput()
    for command in await _rollback_commands(session):
        listed = CommandOutput()
        if session.user != "root":
            listed = await session.run(("sudo", "-n", "-l", *command), limit=5)
        line = f"{listed.status} {' '.join(command)}\n"
        output = CommandOutput(listed.status, output.out + line, output.err + listed.err)
        if listed.status == TIMED_OUT:
            break
    return output


async def _rollback_commands(session: ShellSession) -> list[Words]:
    commands: list[Words] = []
    if session.has("bootc"):
        commands += [("bootc", "status", "--format", "json"), ("bootc", "rollback")]
    if session.has("rpm-ostree"):
        commands.append(("rpm-ostree", "rollback"))
    if session.has("cgpt"):
        booted = (await session.run(("rootdev", "-s", "/usr"))).out.strip()
        mount = ("unshare", "--mount", "sh", "-c", READ_OTHER_SLOT, "sh", booted)
        commands += [("cgpt", "find", "-t", "flatcar-usr"), ("cgpt", "show", booted)]
        commands += [("cgpt", "prioritize", booted), mount]
    return commands


async def boot_other(session: ShellSession) -> CommandOutput:
    if session.has("bootc"):
        return await _choose_bootc_system(session, wants_other=True)
    if session.has("rpm-ostree"):
        booted = await _first_deployment(session, "booted")
        staged = await _first_deployment(session, "staged")
        if "true" in booted.out:
            return await _as_root(session, "rpm-ostree", "rollback")
        return _STAGED_SINCE if "true" in staged.out else replace(booted, out="")
    _running, found, other = await _partitions(session)
    shown = await _as_root(session, "cgpt", "show", other)
    if shown.status:
        return CommandOutput(shown.status, err=found.err + shown.err)
    if "successful=1" not in shown.out:
        return replace(_STAGED_SINCE, err=found.err + shown.err + _STAGED_SINCE.err)
    chosen = await _as_root(session, "cgpt", "prioritize", other)
    return replace(chosen, err=found.err + shown.err + chosen.err)


async def boot_running(session: ShellSession) -> CommandOutput:
    if session.has("bootc"):
        return await _choose_bootc_system(session, wants_other=False)
    if session.has("rpm-ostree"):
        booted = await _first_deployment(session, "booted")
        staged = await _first_deployment(session, "staged")
        if "true" in booted.out + staged.out:
            return replace(booted, out="")
        # Nothing follows the booted one in the lab.
        await session.run(("rpm-ostree", "status", "--jsonpath=$.deployments[*].booted"))
        swapped = await _as_root(session, "rpm-ostree", "rollback")
        if not swapped.status:
            await _first_deployment(session, "booted")
        return swapped
    running, found, other = await _partitions(session)
    shown = await _as_root(session, "cgpt", "show", other)
    err = found.err + shown.err
    if shown.status:
        return CommandOutput(shown.status, err=err)
    if "successful=1" not in shown.out:
        return CommandOutput(err=err)
    chosen = await _as_root(session, "cgpt", "prioritize", running)
    return replace(chosen, err=err + chosen.err)


async def _choose_bootc_system(session: ShellSession, *, wants_other: bool) -> CommandOutput:
    """Source: the cases of `images` in gather/hosts/rollback_command.py, all bootc's."""
    status = await _as_root(session, "bootc", "status", "--format", "json")
    unchanged = replace(status, out="")
    if status.status:
        return unchanged
    # The staged version boots next, whatever else is chosen.
    if session.machine.update_engine.staged:
        return _STAGED_SINCE if wants_other else unchanged
    if session.machine.boots_other == wants_other:
        return unchanged
    swapped = await _as_root(session, "bootc", "rollback")
    return replace(swapped, err=status.err + swapped.err)


async def _partitions(session: ShellSession, *, limit: float = 0) -> tuple[str, CommandOutput, str]:
    """Return the booted partition, the answer with all, and the others' lines."""
    running = (await session.run(("rootdev", "-s", "/usr"))).out.strip()
    found = await _as_root(session, "cgpt", "find", "-t", "flatcar-usr", limit=limit)
    other = "\n".join(line for line in found.out.splitlines() if line != running)
    return running, found, other


async def _first_deployment(session: ShellSession, field: str) -> CommandOutput:
    return await session.run(("rpm-ostree", "status", f"--jsonpath=$.deployments[0].{field}"))


async def _as_root(session: ShellSession, *words: str, limit: float = 0) -> CommandOutput:
    prefix = () if session.user == "root" else ("sudo", "-n")
    return await session.run((*prefix, *words), limit=limit)


SLOT_PROGRAMS: Final[Mapping[str, Program]] = {
    "cgpt": _cgpt,
    "rootdev": _rootdev,
    "unshare": _unshare,
}
