"""update_engine's state, out of whatever one of its two clients printed.

Neither client's exit status is to be trusted: `update_engine_client` prints `CURRENT_OP=(null)` and exits 0
where D-Bus denied it. An answer counts where it names an operation.
"""

import math
import re
from collections.abc import Mapping

from rollout.gather.hosts.answer import CUT_OFF, NOT_FOUND, assignments, complaint, exit_status
from rollout.model.host import NO_VERSION, EngineTrouble, UpdateOperation, UpdateStatus
from rollout.model.text import excerpt

_SOURCES = ("client", "bus", "sudo-bus", "sudo-client")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_~-]{0,63}")
_NULL = "(null)"
_BUS_STRING = r'"((?:[^"\\]|\\.)*)"'
_BUS_REPLY = re.compile(rf"xdssx \S+ (\S+) {_BUS_STRING} {_BUS_STRING} \S+")
_OPERATIONS = frozenset(UpdateOperation) - {UpdateOperation.UNKNOWN, UpdateOperation.NOT_ASKED}
# What the bus says of a name that no program has, nor any file says how to start one.
_NO_SUCH_SERVICE = "The name com.coreos.update1 was not provided by any .service files"


def parse_update_status(stdout: Mapping[str, str], stderr: Mapping[str, str]) -> UpdateStatus:
    """Return the first usable answer among the sections; operation UNKNOWN with a reason where there is none."""
    for source in _SOURCES:
        status = _from_client(stdout.get(source, "")) or _from_bus(stdout.get(source, ""))
        if status is not None:
            return status
    trouble, message = _why_unknown(stdout, stderr)
    return UpdateStatus(UpdateOperation.UNKNOWN, message=message, trouble=trouble)


def version(text: str) -> str:
    """Return the text where it has the form of an OS version, else empty."""
    return text if _VERSION.fullmatch(text) else ""


def _from_client(text: str) -> UpdateStatus | None:
    values = assignments(text)
    operation = values.get("CURRENT_OP", "")
    if operation in ("", _NULL):
        return None
    return _status(operation, values.get("NEW_VERSION", ""), values.get("PROGRESS", ""))


def _from_bus(text: str) -> UpdateStatus | None:
    match = _BUS_REPLY.search(text)
    if match is None or not match[2]:
        return None
    return _status(match[2], match[3], match[1])


def _status(operation: str, new_version: str, progress: str) -> UpdateStatus:
    parsed = UpdateOperation(operation) if operation in _OPERATIONS else UpdateOperation.UNKNOWN
    return UpdateStatus(
        operation=parsed,
        new_version="" if new_version == NO_VERSION else version(new_version),
        progress=_fraction(progress),
        message=f"update_engine reports an unknown operation: {excerpt(operation, 60)}"
        if parsed is UpdateOperation.UNKNOWN
        else "",
    )


def _fraction(text: str) -> float:
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        return 0.0
    return min(1.0, max(0.0, value)) if math.isfinite(value) else 0.0


def _why_unknown(stdout: Mapping[str, str], stderr: Mapping[str, str]) -> tuple[EngineTrouble, str]:
    sources = [source for source in _SOURCES if source in stdout]
    codes = {source: exit_status(stdout[source]) for source in sources}
    if CUT_OFF in codes.values():
        return EngineTrouble.SILENT, "update_engine did not answer in time: the system bus or the engine is down"
    if codes.get("client") == NOT_FOUND:
        return EngineTrouble.MISSING, _missing(complaint(stderr.get("bus", "")))
    if any(_NULL in stdout[source] for source in sources):
        return EngineTrouble.DENIED, _with_cause(
            "update_engine refused to answer: its bus policy allows only root and user core",
            complaint(stderr.get("sudo-bus", "")),
        )
    causes = (complaint(stderr.get(source, "")) for source in sources)
    return EngineTrouble.OTHER, _with_cause("update_engine did not answer", next(filter(None, causes), ""))


def _missing(said: str) -> str:
    """Where the bus does not know it either, there is nothing more to say."""
    if said.endswith(_NO_SUCH_SERVICE):
        return "update_engine is not on this host"
    return _with_cause("update_engine_client is not on this host, and D-Bus gave no answer", said)


def _with_cause(sentence: str, cause: str) -> str:
    return f"{sentence} ({cause})" if cause else sentence
