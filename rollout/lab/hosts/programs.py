"""The programs of a simulated host: few, and with the few options that rollout and its playbooks use.

Some ask its services: `systemctl`, `busctl`, `update_engine_client` and `rpm-ostree`. Whoever wants a real host has
`tests/e2e`; a scenario's `commands` say what else a host answers.
"""

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from rollout.lab.hosts.faults import BusFault, SudoFault
from rollout.lab.hosts.machine import STAGED_LOCK, UPDATE_ENGINE, Machine, Unit
from rollout.lab.hosts.session import Output, Program, Session, Words, read_file

_UNAUTHORIZED: Final = "Interactive authentication required."
_INACTIVE, _UNKNOWN_UNIT, _NOT_LOADED = 3, 4, 5
_ENGINE, _LOGIND = "com.coreos.update1", "org.freedesktop.login1"
_ATTEMPTS: Final = 4
_RETRY_SECONDS: Final = 10
_ORIGIN: Final = "fedora:fedora/x86_64/coreos/stable"


async def _halt(session: Session, _words: Words) -> Output:
    """`reboot` and `shutdown -r now`."""
    if session.user != "root":
        return Output(1, err=f"Call to Reboot failed: {_UNAUTHORIZED}\n")
    session.machine.reboot()
    return Output()


# Units.


async def _systemctl(session: Session, words: Words) -> Output:
    """`systemctl reboot`, questions about units, and what changes them."""
    options = [word for word in words[1:] if word.startswith("-")]
    verb, *names = (word for word in words[1:] if not word.startswith("-"))
    units = {name: session.machine.units.find(name) for name in names}
    match verb:
        case "reboot":
            return await _halt(session, words)
        case "is-active":
            return _states("ActiveState", "active", units)
        case "is-enabled":
            return _states("UnitFileState", "enabled", units)
        case "show":
            return _show([word for word in names if "." not in word], [name for name in names if "." in name], session)
        case _ if verb in _CHANGES:
            outputs = [_change(session, verb, name, now="--now" in options) for name in names]
            return Output(max(output.status for output in outputs), err="".join(output.err for output in outputs))
        case _:
            return Output(1, err=f"Unknown command verb '{verb}'.\n")


def _states(name: str, wanted: str, units: Mapping[str, Unit | None]) -> Output:
    """Status 0 where one of the units is as wanted."""
    absent = {"ActiveState": "inactive", "UnitFileState": "not-found"}
    states = [(unit.properties if unit else absent)[name] for unit in units.values()]
    unlike = (_INACTIVE if wanted == "active" else 1) if any(units.values()) else _UNKNOWN_UNIT
    return Output(0 if wanted in states else unlike, "".join(f"{state}\n" for state in states))


def _show(properties: list[str], names: list[str], session: Session) -> Output:
    """`show -p PROPERTY … UNIT`, a unit by its full name."""
    said = ""
    for name in names:
        unit = session.machine.units.find(name)
        absent = {"LoadState": "not-found", "ActiveState": "inactive", "UnitFileState": ""}
        known = unit.properties if unit else absent
        said += "".join(f"{key}={known[key]}\n" for key in properties if key in known)
    return Output(out=said)


# What a verb sets, of which attribute of a unit.
_CHANGES: Final[Mapping[str, tuple[str, bool]]] = MappingProxyType(
    {
        **dict.fromkeys(("start", "restart"), ("active", True)),
        "stop": ("active", False),
        "enable": ("enabled", True),
        "disable": ("enabled", False),
        "mask": ("masked", True),
        "unmask": ("masked", False),
    }
)


def _change(session: Session, verb: str, name: str, *, now: bool) -> Output:
    unit = session.machine.units.find(name)
    failed = f"Failed to {verb} {name}: "
    if session.user != "root":
        return Output(1, err=f"{failed}{_UNAUTHORIZED}\n")
    if unit is None:
        return Output(_NOT_LOADED, err=f"{failed}Unit {name} not found.\n")
    if unit.masked and verb in ("start", "restart"):
        return Output(1, err=f"{failed}Unit {name} is masked.\n")
    setattr(unit, *_CHANGES[verb])
    if now and verb in ("enable", "disable", "mask"):
        unit.active = verb == "enable"
    if unit.name == UPDATE_ENGINE and verb in ("start", "restart"):
        session.machine.engine.restart()
    return Output()


# The bus: its policy admits root and the user core to update-engine.


def _engine_refuses(session: Session) -> str:
    """Why a call to update-engine fails; empty where it is let through."""
    machine = session.machine
    if machine.faults.bus is BusFault.ABSENT or not machine.units.active(UPDATE_ENGINE):
        return f"The name {_ENGINE} was not provided by any .service files"
    return "Access denied" if machine.faults.bus is BusFault.DENIED and session.user != "root" else ""


async def _busctl(session: Session, words: Words) -> Output:
    """`busctl --system call SERVICE OBJECT INTERFACE METHOD`."""
    machine, service, method = session.machine, words[3], words[-1]
    why = _engine_refuses(session) if service == _ENGINE else ""
    if (service, method) == (_LOGIND, "Reboot") and session.user != "root":
        why = _UNAUTHORIZED
    if why:
        return Output(1, err=f"Call failed: {why}\n")
    match method:
        case "ListInhibitors":
            return Output(out=_inhibitors(machine))
        case "Reboot":
            machine.reboot()
        case "AttemptUpdate":
            machine.attempt_update()
        case _:
            now = machine.engine.status()
            status_line = f'xdssx {now.last_checked} {now.progress:g} "{now.operation}" "{now.version}" {now.size}\n'
            return Output(out=status_line)
    return Output()


def _inhibitors(machine: Machine) -> str:
    """Who holds a shutdown up: (what, who, why, mode, uid, pid) each; a kubelet only ever delays one."""
    held = [("shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay")]
    if machine.faults.inhibited:
        held.append(("shutdown:sleep", "backup", "nightly backup", machine.faults.inhibitor_mode))
    rows = " ".join(" ".join((*(f'"{word}"' for word in one), "0", "812")) for one in held)
    return f"a(ssssuu) {len(held)} {rows}\n"


# update_engine_client, to the byte on standard output, its exit statuses and its slowness included.


async def _update_engine_client(session: Session, words: Words) -> Output:
    """`-status` and `-check_for_update`; the real client ignores that its call for the status failed."""
    said = why = ""
    for attempt in range(1, _ATTEMPTS + 1):
        why = _engine_refuses(session)
        if not why or why == "Access denied":
            break
        if attempt == _ATTEMPTS:
            said += _logged(session, "E", f"Giving up -- unable to get dbus proxy for {_ENGINE}")
            return Output(1, err=said)
        said += _logged(session, "E", f"Failed to get dbus proxy, will retry (attempt {attempt}/{_ATTEMPTS})")
        await session.sleep(_RETRY_SECONDS)
    rejected = "Rejected send message, access denied by the bus policy"
    if words[1].lstrip("-") == "status":
        said += _logged(session, "I", "Querying Update Engine status...")
        said += _logged(session, "E", f"Error getting status: {rejected}") if why else ""
        return Output(out=_status(session.machine, denied=bool(why)), err=said)
    if why:
        return Output(1, err=said + _logged(session, "E", f"Error calling {words[1].lstrip('-')}: {rejected}"))
    session.machine.attempt_update()
    return Output(err=said + _logged(session, "I", "Initiating update check and install."))


def _status(machine: Machine, *, denied: bool) -> str:
    if denied:
        return "LAST_CHECKED_TIME=0\nPROGRESS=0.000000\nCURRENT_OP=(null)\nNEW_VERSION=(null)\nNEW_SIZE=0\n"
    now = machine.engine.status()
    return (
        f"LAST_CHECKED_TIME={now.last_checked}\nPROGRESS={now.progress:f}\nCURRENT_OP={now.operation}\n"
        f"NEW_VERSION={now.version}\nNEW_SIZE={now.size}\n"
    )


def _logged(session: Session, severity: str, message: str) -> str:
    """Return a line as glog writes it, on standard error."""
    stamp = session.machine.clock.now()
    return f"{severity}{stamp:%m%d %H:%M:%S.%f}  4242 update_engine_client.cc:251] {message}\n"


# rpm-ostree, as far as its deployments say which one runs and which one waits for a reboot.


def checksum_of(version: str) -> str:
    """Return the commit of a release of Fedora CoreOS."""
    return hashlib.sha256(f"fedora-coreos {version}".encode()).hexdigest()


async def _rpm_ostree(session: Session, words: Words) -> Output:
    """`rpm-ostree status --json` and `rpm-ostree finalize-deployment`, which unlocks what is staged and reboots."""
    machine = session.machine
    if words[1] == "status":
        status = {"deployments": _deployments(machine), "transaction": None, "cached-update": None}
        return Output(out=f"{json.dumps(status, indent=2)}\n")
    if session.user != "root":
        return Output(1, err="error: This operation requires root privileges\n")
    if machine.engine.staged is None or machine.files.pop(STAGED_LOCK, None) is None:
        return Output(1, err="error: No pending staged and locked deployment\n")
    machine.reboot()
    return Output()


def _deployments(machine: Machine) -> list[dict[str, Any]]:
    """List the deployments; what is staged comes first, as it would be booted next."""
    booted = _deployment(machine.os_version, booted=True, staged=False)
    if machine.engine.staged is None:
        return [booted]
    staged = _deployment(machine.engine.staged, booted=False, staged=True)
    return [{**staged, "finalization-locked": STAGED_LOCK in machine.files}, booted]


def _deployment(version: str, *, booted: bool, staged: bool) -> dict[str, Any]:
    checksum = checksum_of(version)
    identity = {"id": f"fedora-coreos-{checksum}.0", "osname": "fedora-coreos", "serial": 0, "checksum": checksum}
    state = {"booted": booted, "staged": staged, "pinned": False, "packages": []}
    return {**identity, "version": version, "origin": _ORIGIN, **state}


# Programs that ask nobody.

_FOREVER: Final = 86_400.0
_FROM: Final = "(192.0.2.7)"
_SUDO_SAYS: Final = {
    SudoFault.PASSWORD: "sudo: a password is required",
    SudoFault.UNKNOWN_USER: "{} is not in the sudoers file.",
    SudoFault.NO_TERMINAL: "sudo: sorry, you must have a tty to run sudo",
}


def _constant(status: int) -> Program:
    async def end(_session: Session, _words: Words) -> Output:
        return Output(status)

    return end


async def _sleep(session: Session, words: Words) -> Output:
    await session.sleep(float(words[1]))
    return Output()


async def _timeout(session: Session, words: Words) -> Output:
    return await session.run(words[2:], limit=float(words[1]))


async def _echo(_session: Session, words: Words) -> Output:
    return Output(out=f"{' '.join(words[1:])}\n")


async def _hostname(session: Session, _words: Words) -> Output:
    return Output(out=f"{session.machine.name}\n")


async def _cat(session: Session, words: Words) -> Output:
    texts = {path: read_file(session.machine, path) for path in words[1:]}
    missing = [path for path, text in texts.items() if text is None]
    complaints = "".join(f"cat: {path}: No such file or directory\n" for path in missing)
    return Output(int(bool(missing)), "".join(filter(None, texts.values())), complaints)


async def _test(session: Session, words: Words) -> Output:
    """`test -e FILE`, and more of them joined by `-o`."""
    return Output(int(all(read_file(session.machine, path) is None for path in words[2::3])))


async def _sudo(session: Session, words: Words) -> Output:
    """`sudo -n COMMAND`, `sudo -n -l COMMAND` and `sudo -n -l`."""
    machine, user = session.machine, session.user
    at = next((at for at, word in enumerate(words) if at and not word.startswith("-")), len(words))
    command, is_question = words[at:], "-l" in words[:at]
    fault = SudoFault.NONE if user == "root" else machine.faults.sudo
    if fault is SudoFault.HANGS:
        await session.sleep(_FOREVER)
    if fault in _SUDO_SAYS:
        return Output(1, err=f"{_SUDO_SAYS[fault].format(user)}\n")
    if not command:
        return _rules(session, allowed=fault is SudoFault.NONE)
    if not session.has(command[0]):
        return Output(1, err=f"sudo: {command[0]}: command not found\n")
    path = command[0] if "/" in command[0] else f"/usr/bin/{command[0]}"
    full = " ".join((path, *command[1:]))
    if fault is SudoFault.REFUSED:
        refusal = f"Sorry, user {user} is not allowed to execute '{full}' as root on {machine.name}.\n"
        return Output(1, err="" if is_question else refusal)
    if is_question:
        return Output(out=f"{full}\n")
    machine.log("sudo", f"{user} : PWD=/home/core ; USER=root ; COMMAND={' '.join(command)}")
    return await session.as_root().run(command)


def _rules(session: Session, *, allowed: bool) -> Output:
    on = f"{session.user} may run the following commands on {session.machine.name}"
    if allowed:
        return Output(out=f"User {on}:\n    (ALL) NOPASSWD: ALL\n")
    return Output(1, f"User {session.user} is not allowed to run sudo on {session.machine.name}.\n")


async def _who(session: Session, _words: Words) -> Output:
    """Return a line for each login at a terminal."""
    since = session.machine.booted_at
    logins = (user.partition(" ") for user in session.machine.users)
    return Output(out="".join(f"{name:<8} {at:<12} {since:%Y-%m-%d %H:%M} {_FROM}\n" for name, _, at in logins))


PROGRAMS: Final[Mapping[str, Program]] = MappingProxyType(
    {
        **dict.fromkeys(("reboot", "shutdown"), _halt),
        **dict.fromkeys(("true", "."), _constant(0)),
        "busctl": _busctl,
        "cat": _cat,
        "echo": _echo,
        "false": _constant(1),
        "hostname": _hostname,
        "rpm-ostree": _rpm_ostree,
        "sleep": _sleep,
        "sudo": _sudo,
        "systemctl": _systemctl,
        "test": _test,
        "timeout": _timeout,
        "update_engine_client": _update_engine_client,
        "who": _who,
    }
)
