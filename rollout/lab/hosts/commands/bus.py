"""Who may talk to update-engine on the host's bus, and what happens otherwise.

Shared by the two programs that ask it. The bus policy admits root and the user core.
"""

from enum import Enum, auto

from rollout.lab.hosts.faults import BusFault
from rollout.lab.hosts.process import Process
from rollout.lab.hosts.units import UPDATE_ENGINE


class Access(Enum):
    """What a call to update-engine meets."""

    GRANTED = auto()
    DENIED = auto()
    NO_ENGINE = auto()


def access(process: Process) -> Access:
    """What this process meets when it calls update-engine."""
    machine = process.machine
    if machine.faults.bus is BusFault.ABSENT or not machine.units.active(UPDATE_ENGINE):
        return Access.NO_ENGINE
    # The fault is a host whose policy lacks the rule for core; root is admitted by the bus itself.
    denied = machine.faults.bus is BusFault.DENIED and process.user != "root"
    return Access.DENIED if denied or process.user not in ("root", "core") else Access.GRANTED
