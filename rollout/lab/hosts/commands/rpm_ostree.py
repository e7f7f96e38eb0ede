"""`rpm-ostree`, as far as its deployments say which one runs and which one waits for a reboot."""

import hashlib
import json
from typing import Any, Final

from rollout.lab.hosts import files
from rollout.lab.hosts.machine import STAGED_LOCK, Machine
from rollout.lab.hosts.process import Process

_ORIGIN: Final = "fedora:fedora/x86_64/coreos/stable"


async def rpm_ostree(process: Process) -> int:
    """`rpm-ostree status [--json]` and `rpm-ostree finalize-deployment --allow-missing-checksum`."""
    words = [word for word in process.arguments if not word.startswith("-")]
    if words[:1] == ["status"]:
        return _status(process, as_json="--json" in process.arguments)
    if words[:1] == ["finalize-deployment"]:
        return _finalize(process)
    process.complain(f"error: Unknown command '{words[0] if words else ''}'")
    return 1


def checksum_of(version: str) -> str:
    """The commit of a release."""
    return hashlib.sha256(f"fedora-coreos {version}".encode()).hexdigest()


def _status(process: Process, *, as_json: bool) -> int:
    deployments = _deployments(process.machine)
    if as_json:
        process.print(json.dumps({"deployments": deployments, "transaction": None, "cached-update": None}, indent=2))
        return 0
    process.print("State: idle\nDeployments:")
    for deployment in deployments:
        process.print(f"{'●' if deployment['booted'] else ' '} {_ORIGIN}\n{'Version: ':>27}{deployment['version']}")
    return 0


def _deployments(machine: Machine) -> list[dict[str, Any]]:
    """What is staged comes first, as it would be booted next."""
    booted = _deployment(machine.os_version, booted=True)
    if machine.engine.staged is None:
        return [booted]
    staged = _deployment(machine.engine.staged, staged=True)
    return [{**staged, "finalization-locked": STAGED_LOCK in machine.files}, booted]


def _deployment(version: str, *, booted: bool = False, staged: bool = False) -> dict[str, Any]:
    checksum = checksum_of(version)
    return {
        "id": f"fedora-coreos-{checksum}.0",
        "osname": "fedora-coreos",
        "serial": 0,
        "checksum": checksum,
        "version": version,
        "origin": _ORIGIN,
        "booted": booted,
        "staged": staged,
        "pinned": False,
        "packages": [],
    }


def _finalize(process: Process) -> int:
    """Unlock what is staged, and reboot into it."""
    if process.user != "root":
        process.complain("error: This operation requires root privileges")
        return 1
    if process.machine.engine.staged is None or not files.remove(process.machine, STAGED_LOCK):
        process.complain("error: No pending staged and locked deployment")
        return 1
    process.machine.reboot()
    return 0
