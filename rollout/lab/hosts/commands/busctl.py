"""`busctl call` on the two services of a host that matter here: update-engine and logind."""

import json
from typing import Final

from rollout.lab.hosts.commands.bus import Access, access
from rollout.lab.hosts.engine import EngineStatus
from rollout.lab.hosts.process import Process

_UPDATE_ENGINE: Final = ("com.coreos.update1", "/com/coreos/update1", "com.coreos.update1.Manager")
_LOGIND: Final = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
_SIGNATURE: Final = "xdssx"


async def busctl(process: Process) -> int:
    """`busctl [--system] [--json=short|-j] call SERVICE OBJECT INTERFACE METHOD …`."""
    words = [word for word in process.arguments if not word.startswith("-")]
    if words[:1] != ["call"]:
        process.complain(f"Unknown command verb '{words[0]}'." if words else "No command verb given.")
        return 1
    target, method = tuple(words[1:4]), words[4] if len(words) > 4 else ""  # noqa: PLR2004 - after its target
    if target == _UPDATE_ENGINE:
        return _call_engine(process, method)
    if target == _LOGIND and method in _OF_LOGIND:
        return _OF_LOGIND[method](process)
    return _failed(process, f"The name {words[1] if words[1:] else ''} was not provided by any .service files")


def _call_engine(process: Process, method: str) -> int:
    granted = access(process)
    if granted is Access.NO_ENGINE:
        return _failed(process, "The name com.coreos.update1 was not provided by any .service files")
    if granted is Access.DENIED:
        return _failed(process, "Access denied")
    engine = process.machine.engine
    match method:
        case "GetStatus":
            process.print(_answer(process, engine.status()))
        case "AttemptUpdate":
            process.machine.attempt_update()
        case "ResetStatus":
            engine.reset()
        case _:
            return _failed(process, f"Method {method} is not implemented on interface {_UPDATE_ENGINE[2]}")
    return 0


def _call_logind(process: Process) -> int:
    if process.user != "root":
        return _failed(process, "Interactive authentication required.")
    process.machine.reboot()
    return 0


def _inhibitors(process: Process) -> int:
    """Who holds a shutdown up: (what, who, why, mode, uid, pid) each; a kubelet only ever delays one."""
    held = [("shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay")]
    faults = process.machine.faults
    if faults.inhibited:
        held.append(("shutdown:sleep", "backup", "nightly backup", faults.inhibitor_mode))
    rows = " ".join(" ".join((*(f'"{word}"' for word in one), "0", "812")) for one in held)
    process.print(f"a(ssssuu) {len(held)} {rows}")
    return 0


_OF_LOGIND: Final = {"Reboot": _call_logind, "ListInhibitors": _inhibitors}


def _answer(process: Process, status: EngineStatus) -> str:
    if {"-j", "--json=short"} & set(process.arguments):
        data = [status.last_checked, status.progress, status.operation.value, status.version, status.size]
        return json.dumps({"type": _SIGNATURE, "data": data}, separators=(",", ":"))
    return (
        f'{_SIGNATURE} {status.last_checked} {status.progress:g} "{status.operation}" "{status.version}" {status.size}'
    )


def _failed(process: Process, reason: str) -> int:
    process.complain(f"Call failed: {reason}")
    return 1
