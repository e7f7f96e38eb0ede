"""The programs of a simulated host: few, and with the few options that rollout and its playbooks use.

Some ask its services: `systemctl`, `busctl`, `update_engine_client` and `rpm-ostree`. Whoever wants
a real host has `tests/e2e`; a scenario's `commands` say what else a host answers.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from rollout.lab.hosts.faults import BusFault, SudoFault
from rollout.lab.hosts.machine import STAGED_LOCK, UPDATE_ENGINE, Machine
from rollout.lab.hosts.session import CommandOutput, Program, ShellSession, Words, read_file

_UNAUTHORIZED: Final = "Interactive authentication required."
_UNKNOWN_UNIT = 4
_NOT_LOADED = 5
_ENGINE = "com.coreos.update1"
_LOGIND = "org.freedesktop.login1"
_DENIED: Final = "Access denied"
# The client tries four times, ten seconds apart.
_GIVES_UP_SECONDS: Final = 30


async def _halt(session: ShellSession, _words: Words) -> CommandOutput:
    """`reboot` and `shutdown -r now`."""
    if session.user != "root":
        return CommandOutput(1, err=f"Call to Reboot failed: {_UNAUTHORIZED}\n")
    session.machine.reboot()
    return CommandOutput()


# Units.


async def _systemctl(session: ShellSession, words: Words) -> CommandOutput:
    """`systemctl reboot`, questions about units, and what changes them."""
    units = session.machine.units
    verb, *names = (word for word in words[1:] if not word.startswith("-"))
    if verb == "reboot":
        return await _halt(session, words)
    if verb in _QUESTIONS:
        name, wanted, unlike = _QUESTIONS[verb]
        states = [units.properties(unit)[name] or "not-found" for unit in names]
        status = 0 if wanted in states else unlike if any(map(units.find, names)) else _UNKNOWN_UNIT
        return CommandOutput(status, "".join(f"{state}\n" for state in states))
    if verb == "show":
        # `show -p PROPERTY … UNIT`, a unit by its full name
        shown = [(word, units.properties(unit)) for unit in names if "." in unit for word in names]
        return CommandOutput(
            out="".join(f"{word}={known[word]}\n" for word, known in shown if word in known)
        )
    if verb in _CHANGES:
        outputs = [_change(session, verb, name, now="--now" in words) for name in names]
        return CommandOutput(
            max(output.status for output in outputs), err="".join(output.err for output in outputs)
        )
    return CommandOutput(1, err=f"Unknown command verb '{verb}'.\n")


# Which property a question is about, the state that it asks for, and its status for any other.
_QUESTIONS: Final = {
    "is-active": ("ActiveState", "active", 3),
    "is-enabled": ("UnitFileState", "enabled", 1),
}
# What a verb sets, of which attribute of a unit.
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
        session.machine.engine.restart()
    return CommandOutput()


# The bus: its policy admits root and the user core to update-engine.


def _engine_refuses(session: ShellSession) -> str:
    """Why a call to update-engine fails; empty where it is let through."""
    machine = session.machine
    if machine.faults.bus is BusFault.ABSENT or not machine.units.active(UPDATE_ENGINE):
        return f"The name {_ENGINE} was not provided by any .service files"
    return _DENIED if machine.faults.bus is BusFault.DENIED and session.user != "root" else ""


async def _busctl(session: ShellSession, words: Words) -> CommandOutput:
    """`busctl --system call SERVICE OBJECT INTERFACE METHOD`."""
    machine = session.machine
    service = words[3]
    method = words[-1]
    why = _engine_refuses(session) if service == _ENGINE else ""
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
            checked, progress, operation, version, size = machine.engine.status()
            return CommandOutput(
                out=f'xdssx {checked} {progress:g} "{operation}" "{version}" {size}\n'
            )
    return CommandOutput()


def _inhibitors(machine: Machine) -> str:
    """Who holds a shutdown up: (what, who, why, mode, uid, pid) each; a kubelet only ever delays one."""
    held = [("shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay")]
    if machine.faults.inhibited:
        held.append(("shutdown:sleep", "backup", "nightly backup", "block"))
    rows = " ".join(" ".join((*(f'"{word}"' for word in one), "0", "812")) for one in held)
    return f"a(ssssuu) {len(held)} {rows}\n"


async def _update_engine_client(session: ShellSession, words: Words) -> CommandOutput:
    """`-status` and `-check_for_update`; the real client ignores that its call for the status failed."""
    why = _engine_refuses(session)
    machine = session.machine
    if why and why != _DENIED:
        await session.sleep(_GIVES_UP_SECONDS)
        return CommandOutput(
            1, err=_glog_line(session, f"Giving up -- unable to get dbus proxy for {_ENGINE}")
        )
    refused = _glog_line(
        session, f"Error calling {words[1]}: Rejected send message, access denied by the bus policy"
    )
    if "status" not in words[1]:
        if why:
            return CommandOutput(1, err=refused)
        machine.attempt_update()
        return CommandOutput()
    checked, progress, *what, size = machine.engine.status()
    operation, version = ("(null)", "(null)") if why else what
    said = f"LAST_CHECKED_TIME={checked}\nPROGRESS={progress:f}\nCURRENT_OP={operation}\n"
    return CommandOutput(
        out=f"{said}NEW_VERSION={version}\nNEW_SIZE={size}\n", err=refused if why else ""
    )


def _glog_line(session: ShellSession, message: str) -> str:
    """Return an error as glog writes it."""
    return (
        f"E{session.machine.clock.now():%m%d %H:%M:%S.%f}  4242 update_engine_client.cc:251]"
        f" {message}\n"
    )


# rpm-ostree, as far as its deployments say which one runs and which one waits for a reboot.


def checksum_of(version: str) -> str:
    """Return the commit of a release of Fedora CoreOS."""
    return hashlib.sha256(f"fedora-coreos {version}".encode()).hexdigest()


async def _rpm_ostree(session: ShellSession, words: Words) -> CommandOutput:
    """`rpm-ostree status --json` and `rpm-ostree finalize-deployment`, which unlocks what is staged and reboots."""
    machine = session.machine
    staged = machine.engine.staged
    is_locked = STAGED_LOCK in machine.files
    if words[1] == "status":
        # what is staged comes first, as it would be booted next
        waiting = (
            [{**_deployment(staged), "staged": True, "finalization-locked": is_locked}]
            if staged
            else []
        )
        status = {
            "deployments": [*waiting, {**_deployment(machine.os_version), "booted": True}],
            "transaction": None,
        }
        return CommandOutput(out=f"{json.dumps(status, indent=2)}\n")
    if session.user != "root":
        return CommandOutput(1, err="error: This operation requires root privileges\n")
    if not (staged and is_locked):
        return CommandOutput(1, err="error: No pending staged and locked deployment\n")
    del machine.files[STAGED_LOCK]
    machine.reboot()
    return CommandOutput()


def _deployment(version: str) -> dict[str, object]:
    return {"osname": "fedora-coreos", "checksum": checksum_of(version), "version": version}


# Programs that ask nobody.

_FOREVER: Final = 86_400.0
_FROM: Final = "(192.0.2.7)"
_SUDO_SAYS: Final = {
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
    texts = {path: read_file(session.machine, path) for path in words[1:]}
    missing = [path for path, text in texts.items() if text is None]
    complaints = "".join(f"cat: {path}: No such file or directory\n" for path in missing)
    return CommandOutput(int(bool(missing)), "".join(filter(None, texts.values())), complaints)


async def _test(session: ShellSession, words: Words) -> CommandOutput:
    """`test -e FILE`, and more of them joined by `-o`."""
    return CommandOutput(int(all(read_file(session.machine, path) is None for path in words[2::3])))


async def _sudo(session: ShellSession, words: Words) -> CommandOutput:
    """`sudo -n COMMAND`, `sudo -n -l COMMAND` and `sudo -n -l`."""
    machine = session.machine
    user = session.user
    at = next((at for at, word in enumerate(words) if at and not word.startswith("-")), len(words))
    command = words[at:]
    is_question = "-l" in words[:at]
    fault = None if user == "root" else machine.faults.sudo
    if fault is SudoFault.HANGS:
        await session.sleep(_FOREVER)
    if fault in _SUDO_SAYS:
        return CommandOutput(1, err=f"{_SUDO_SAYS[fault]}\n")
    if not command:
        allowed = (
            f"User {user} may run the following commands on {machine.name}:\n    (ALL) NOPASSWD:"
            " ALL\n"
        )
        refused = f"User {user} is not allowed to run sudo on {machine.name}.\n"
        return (
            CommandOutput(1, refused) if fault is SudoFault.REFUSED else CommandOutput(0, allowed)
        )
    if not session.has(command[0]):
        return CommandOutput(1, err=f"sudo: {command[0]}: command not found\n")
    path = command[0] if "/" in command[0] else f"/usr/bin/{command[0]}"
    full = " ".join((path, *command[1:]))
    if fault is SudoFault.REFUSED:
        refusal = (
            f"Sorry, user {user} is not allowed to execute '{full}' as root on {machine.name}.\n"
        )
        return CommandOutput(1, err="" if is_question else refusal)
    if is_question:
        return CommandOutput(out=f"{full}\n")
    machine.run_as_root.append(" ".join(command))
    return await replace(session, user="root").run(command)


async def _who(session: ShellSession, _words: Words) -> CommandOutput:
    """Return a line for each login at a terminal."""
    since = session.machine.booted_at
    logins = (user.partition(" ") for user in session.machine.users)
    return CommandOutput(
        out="".join(
            f"{name:<8} {at:<12} {since:%Y-%m-%d %H:%M} {_FROM}\n" for name, _, at in logins
        )
    )


PROGRAMS: Final[Mapping[str, Program]] = {
    **dict.fromkeys(("reboot", "shutdown"), _halt),
    **dict.fromkeys(("true", "."), _constant(0)),
    "busctl": _busctl,
    "cat": _cat,
    "echo": _echo,
    "false": _constant(1),
    "rpm-ostree": _rpm_ostree,
    "sudo": _sudo,
    "systemctl": _systemctl,
    "test": _test,
    "update_engine_client": _update_engine_client,
    "who": _who,
}
