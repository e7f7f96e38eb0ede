"""Other reboot coordinators."""

from dataclasses import dataclass
from enum import StrEnum


class Rival(StrEnum):
    """Another reboot coordinator; the name for flags."""

    FLUO = "fluo"
    CLUO = "cluo"
    KURED = "kured"
    UPGRADE_CONTROLLER = "system-upgrade-controller"
    CRO = "cro"
    KRM = "krm"
    FLEETLOCK = "fleetlock"
    MCO = "mco"
    BRUPOP = "brupop"
    TUPPR = "tuppr"
    LOCKSMITHD = "locksmithd"
    ZINCATI = "zincati"


class SelfReboot(StrEnum):
    """Software on a host that updates and reboots it on a timer; the name for flags."""

    UNATTENDED_UPGRADES = "unattended-upgrades"
    BOOTC = "bootc"


RIVALS = (*Rival, *SelfReboot)

# What it does, and how to stop it on the host.
SELF_REBOOTS = {
    SelfReboot.UNATTENDED_UPGRADES: (
        "unattended-upgrades reboots the host by itself",
        'set Unattended-Upgrade::Automatic-Reboot "false" in /etc/apt/apt.conf.d',
    ),
    SelfReboot.BOOTC: (
        "bootc-fetch-apply-updates.timer updates the host and reboots it by itself",
        "sudo systemctl mask --now bootc-fetch-apply-updates.timer",
    ),
}


@dataclass(frozen=True, slots=True)
class LockAnnotation:
    """kured's lock: an annotation of its DaemonSet, which up to `owners` nodes hold at a time."""

    name: str
    owners: int = 1


@dataclass(frozen=True, slots=True)
class Coordinator:
    """Another coordinator that may reboot nodes. `rival` is the name for flags.

    `holders` have its lock now: nodes, or whatever a person wrote into it. `locked`: the lock is
    exclusive and does not expire. `lock` is the lock that a person can take to pause it, if any.
    """

    rival: str
    kind: str
    namespace: str
    name: str
    holders: tuple[str, ...] = ()
    locked: bool = False
    lock: LockAnnotation | None = None
