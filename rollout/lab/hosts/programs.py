import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import dropwhile
from typing import Final

from msgspec.structs import replace

from rollout.lab.hosts.faults import BusFault, SudoFault
from rollout.lab.hosts.machine import STAGED_LOCK, UPDATE_ENGINE, Machine, Units
from rollout.lab.hosts.session import CommandOutput, Program, ShellSession, Words, read_file
from rollout.lab.hosts.slots import SLOT_PROGRAMS

_UNAUTHORIZED: Final = "Interactive authentication required."
_UNKNOWN_UNIT = 4
_NOT_LOADED = 5
_ENGINE = "com.coreos.update1"
_LOGIND = "org.freedesktop.login1"
_DENIED: Final = "Access denied"
# The client tries four times, ten seconds apart.
_GIVES_UP_SECONDS: Final = 30


async def _reboot_now(session: ShellSession, _words: Words) -> CommandOutput:
    if session.user != "root":
        return CommandOutput(1, err=f"Call to Reboot failed: {_UNAUTHORIZED}\n")
    session.machine.reboot()
    return CommandOutput()


async def _systemctl(session: ShellSession, words: Words) -> CommandOutput:
    verb, *names = (word for word in words[1:] if not word.startswith("-"))
    if verb == "reboot":
        return await _reboot_now(session, words)
    if verb == "is-active":
        return _check_units(session.machine.units, names, "ActiveState", "active", failure=3)
    if verb == "is-enabled":
        return _check_units(session.machine.units, names, "UnitFileState", "enabled", failure=1)
    if verb == "show":
        return _show_properties(session.machine.units, names)
    if verb in _CHANGES:
        outputs = [_change(session, verb, name, now="--now" in words) for name in names]
        status = max(output.status for output in outputs)
        return CommandOutput(status, err="".join(output.err for output in outputs))
    return CommandOutput(1, err=f"Unknown command verb '{verb}'.\n")


def _check_units(
    units: Units, names: Sequence[str], name: str, expected: str, *, failure: int
) -> CommandOutput:
    """The status is 0 if one unit has the expected value."""
    states = [units.properties(unit)[name] or "not-found" for unit in names]
    status = 0
    if expected not in states:
        status = failure if any(map(units.find, names)) else _UNKNOWN_UNIT
    return CommandOutput(status, "".join(f"{state}\n" for state in states))


def _show_properties(units: Units, words: Sequence[str]) -> CommandOutput:
    out = ""
    for unit in words:
        properties = units.properties(unit) if "." in unit else {}
        for word in words:
            if word in properties:
                out += f"{word}={properties[word]}\n"
    return CommandOutput(out=out)


# A unit's attribute, and its value.
_CHANGES: Final[Mapping[str, tuple[str, bool]]] = {
    **dict.fromkeys(("start", "restart"), ("active", True)),
    "stop": ("active", False),
    "enable": ("enabled", True),
    "disable": ("enabled", False),
    "mask": ("masked", True),
    "unmask": ("masked", False),
}


def _change(session: ShellSession, verb: str, name: str, *, now: bool) -> CommandOutput:
    unit = session.machine.units.find(name)
    failed = f"Failed to {verb} {name}: "
    if session.user != "root":
        return CommandOutput(1, err=f"{failed}{_UNAUTHORIZED}\n")
    if unit is None:
        return CommandOutput(_NOT_LOADED, err=f"{failed}Unit {name} not found.\n")
    if unit.masked and verb in ("start", "restart"):
        return CommandOutput(1, err=f"{failed}Unit {name} is masked.\n")
    setattr(unit, *_CHANGES[verb])
    if now and verb in ("enable", "disable", "mask"):
        unit.active = verb == "enable"
    if unit.name == UPDATE_ENGINE and verb in ("start", "restart"):
        session.machine.update_engine.restart()
    return CommandOutput()


def _why_engine_refuses(session: ShellSession) -> str:
    machine = session.machine
    if machine.faults.bus is BusFault.ABSENT or not machine.units.active(UPDATE_ENGINE):
        return f"The name {_ENGINE} was not provided by any .service files"
    if machine.faults.bus is BusFault.DENIED and session.user != "root":
        return _DENIED
    return ""


async def _busctl(session: ShellSession, words: Words) -> CommandOutput:
    machine = session.machine
    service = words[3]
    method = words[-1]
    why = _why_engine_refuses(session) if service == _ENGINE else ""
    if (service, method) == (_LOGIND, "Reboot") and session.user != "root":
        why = _UNAUTHORIZED
    if why:
        return CommandOutput(1, err=f"Call failed: {why}\n")
    match method:
        case "ListInhibitors":
            return CommandOutput(out=_inhibitors(machine))
        case "Reboot":
            machine.reboot()
        case "AttemptUpdate":
            machine.attempt_update()
        case _:
            checked, progress, operation, version, size = machine.update_engine.status()
            status = f'{checked} {progress:g} "{operation}" "{version}" {size}'
            return CommandOutput(out=f"xdssx {status}\n")
    return CommandOutput()


def _inhibitors(machine: Machine) -> str:
    # A kubelet only delays a shutdown.
    rows = ['"shutdown" "kubelet" "Kubelet needs time to handle node shutdown" "delay" 0 812']
    if machine.faults.inhibited:
        rows.append('"shutdown:sleep" "backup" "nightly backup" "block" 0 812')
    return f"a(ssssuu) {len(rows)} {' '.join(rows)}\n"


async def _update_engine_client(session: ShellSession, words: Words) -> CommandOutput:
    """The real client, too, exits with 0 if the status is denied."""
    option = words[1]
    machine = session.machine
    why = _why_engine_refuses(session)
    if why and why != _DENIED:
        await session.sleep(_GIVES_UP_SECONDS)
        error = f"Giving up -- unable to get dbus proxy for {_ENGINE}"
        return CommandOutput(1, err=_glog_line(session, error))
    err = ""
    if why:
        rejected = "Rejected send message, access denied by the bus policy"
        err = _glog_line(session, f"Error calling {option}: {rejected}")
    if "status" not in option:
        if why:
            return CommandOutput(1, err=err)
        machine.attempt_update()
        return CommandOutput()
    checked, progress, operation, version, size = machine.update_engine.status()
    lines = (
        f"LAST_CHECKED_TIME={checked}",
        f"PROGRESS={progress:f}",
        f"CURRENT_OP={'(null)' if why else operation}",
        f"NEW_VERSION={'(null)' if why else version}",
        f"NEW_SIZE={size}\n",
    )
    return CommandOutput(out="\n".join(lines), err=err)


def _glog_line(session: ShellSession, message: str) -> str:
    now = f"{session.machine.clock.now():%m%d %H:%M:%S.%f}"
    return f"E{now}  4242 update_engine_client.cc:251] {message}\n"


def checksum_of(version: str) -> str:
    return hashlib.sha256(f"fedora-coreos {version}".encode()).hexdigest()


async def _rpm_ostree(session: ShellSession, words: Words) -> CommandOutput:
    """`--jsonpath` works for a field of `$.deployments[0]` or `$.deployments[*]`."""
    machine = session.machine
    staged = machine.update_engine.staged
    is_locked = STAGED_LOCK in machine.files
    if words[1] == "status":
        deployments = _deployments(machine)
        status: object = {"deployments": deployments, "transaction": None}
        if words[-1].startswith("--jsonpath"):
            asked = deployments if "[*]" in words[-1] else deployments[:1]
            status = [item.get(words[-1].rpartition(".")[2], False) for item in asked]
        return CommandOutput(out=f"{json.dumps(status, indent=2)}\n")
    if session.user != "root":
        return CommandOutput(1, err="error: This operation requires root privileges\n")
    if words[1] == "rollback":
        return _swap_systems(machine, "error: No rollback deployment found\n")
    if not (staged and is_locked):
        return CommandOutput(1, err="error: No pending staged and locked deployment\n")
    del machine.files[STAGED_LOCK]
    machine.reboot()
    return CommandOutput()


def _deployments(machine: Machine) -> list[dict[str, object]]:
    """The one that boots next comes first."""
    booted = {**_deployment(machine.os_version), "booted": True}
    others = (
        [{**_deployment(machine.previous_version), "booted": False}]
        if machine.previous_version
        else []
    )
    if machine.update_engine.staged:
        is_locked = STAGED_LOCK in machine.files
        staged = {**_deployment(machine.update_engine.staged), "staged": True}
        return [{**staged, "finalization-locked": is_locked}, booted, *others]
    return [*others, booted] if machine.boots_other else [booted, *others]


_IMAGE: Final = {"image": "quay.example/os/fedora-bootc:42", "transport": "registry"}


def digest_of(version: str) -> str:
    return f"sha256:{hashlib.sha256(f'fedora-bootc {version}'.encode()).hexdigest()}"


async def _bootc(session: ShellSession, words: Words) -> CommandOutput:
    if session.user != "root":
        return CommandOutput(1, err="error: Status: This command must be executed as root\n")
    if words[1:] == ("rollback",):
        return _swap_systems(session.machine, "error: Rolling back: No rollback available\n")
    if words[1:] != ("status", "--format", "json"):
        return CommandOutput(2, err=f"error: unrecognized subcommand '{' '.join(words[1:])}'\n")
    machine = session.machine
    versions = {
        "staged": machine.update_engine.staged,
        "booted": machine.os_version,
        "rollback": machine.previous_version,
    }
    entries = {name: _boot_entry(version) for name, version in versions.items()}
    host = {
        "apiVersion": "org.containers.bootc/v1",
        "kind": "BootcHost",
        "metadata": {"name": "host"},
        "spec": {"image": _IMAGE, "bootOrder": "default"},
        "status": {**entries, "rollbackQueued": machine.boots_other, "type": "bootcHost"},
    }
    return CommandOutput(out=f"{json.dumps(host, separators=(',', ':'))}\n")


def _swap_systems(machine: Machine, complaint: str) -> CommandOutput:
    if not machine.previous_version:
        return CommandOutput(1, err=complaint)
    machine.boots_other = not machine.boots_other
    return CommandOutput(out="Next boot: the other deployment\n")


def _boot_entry(version: str | None) -> dict[str, object] | None:
    if not version:
        return None
    image = {"image": _IMAGE, "version": version, "imageDigest": digest_of(version)}
    return {"image": {**image, "architecture": "amd64"}, "incompatible": False, "pinned": False}


def _deployment(version: str) -> dict[str, object]:
    return {"osname": "fedora-coreos", "checksum": checksum_of(version), "version": version}


_FOREVER: Final = 86_400.0
_LOGIN_ADDRESS: Final = "(192.0.2.7)"
_SUDO_ERRORS: Final = {
    SudoFault.PASSWORD: "sudo: a password is required",
    SudoFault.NO_TERMINAL: "sudo: sorry, you must have a tty to run sudo",
}


def _constant(status: int) -> Program:
    async def end(_session: ShellSession, _words: Words) -> CommandOutput:
        return CommandOutput(status)

    return end


async def _echo(_session: ShellSession, words: Words) -> CommandOutput:
    return CommandOutput(out=f"{' '.join(words[1:])}\n")


async def _cat(session: ShellSession, words: Words) -> CommandOutput:
    out = ""
    err = ""
    for path in words[1:]:
        text = read_file(session.machine, path)
        if text is None:
            err += f"cat: {path}: No such file or directory\n"
        else:
            out += text
    return CommandOutput(1 if err else 0, out, err)


async def _test(session: ShellSession, words: Words) -> CommandOutput:
    texts = [read_file(session.machine, path) for path in words[2::3]]
    return CommandOutput(1 if all(text is None for text in texts) else 0)


async def _sudo(session: ShellSession, words: Words) -> CommandOutput:
    machine = session.machine
    user = session.user
    command = tuple(dropwhile(lambda word: word.startswith("-"), words[1:]))
    lists_only = "-l" in words[: len(words) - len(command)]
    fault = None if user == "root" else machine.faults.sudo
    if fault is SudoFault.HANGS:
        await session.sleep(_FOREVER)
    if fault in _SUDO_ERRORS:
        return CommandOutput(1, err=f"{_SUDO_ERRORS[fault]}\n")
    if not command:
        return _sudo_rules(session, fault)
    if not session.has(command[0]):
        return CommandOutput(1, err=f"sudo: {command[0]}: command not found\n")
    path = command[0] if "/" in command[0] else f"/usr/bin/{command[0]}"
    line = " ".join((path, *command[1:]))
    is_reboot = command == ("systemctl", "reboot")
    if fault is SudoFault.REFUSED or (fault is SudoFault.ONLY_REBOOTS and not is_reboot):
        refusal = f"user {user} is not allowed to execute '{line}' as root on {machine.name}."
        return CommandOutput(1, err="" if lists_only else f"Sorry, {refusal}\n")
    if lists_only:
        return CommandOutput(out=f"{line}\n")
    machine.run_as_root.append(" ".join(command))
    return await replace(session, user="root").run(command)


async def _env(session: ShellSession, words: Words) -> CommandOutput:
    return await session.run(tuple(dropwhile(lambda word: "=" in word, words[1:])))


def _sudo_rules(session: ShellSession, fault: SudoFault | None) -> CommandOutput:
    user = session.user
    host = session.machine.name
    if fault is SudoFault.REFUSED:
        return CommandOutput(1, f"User {user} is not allowed to run sudo on {host}.\n")
    rule = "(ALL) NOPASSWD: ALL"
    if fault is SudoFault.ONLY_REBOOTS:
        rule = "(root) NOPASSWD: /usr/bin/systemctl reboot"
    rules = f"User {user} may run the following commands on {host}:\n    {rule}\n"
    return CommandOutput(0, rules)


async def _who(session: ShellSession, _words: Words) -> CommandOutput:
    since = f"{session.machine.booted_at:%Y-%m-%d %H:%M}"
    out = ""
    for user in session.machine.users:
        name, _, terminal = user.partition(" ")
        out += f"{name:<8} {terminal:<12} {since} {_LOGIN_ADDRESS}\n"
    return CommandOutput(out=out)


PROGRAMS: Final[Mapping[str, Program]] = {
    **SLOT_PROGRAMS,
    **dict.fromkeys(("reboot", "shutdown"), _reboot_now),
    **dict.fromkeys(("true", "."), _constant(0)),
    "bootc": _bootc,
    "busctl": _busctl,
    "cat": _cat,
    "echo": _echo,
    "env": _env,
    "false": _constant(1),
    "rpm-ostree": _rpm_ostree,
    "sudo": _sudo,
    "systemctl": _systemctl,
    "test": _test,
    "update_engine_client": _update_engine_client,
    "who": _who,
}
