"""Other reboot coordinators, as they stand in the cluster."""

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
    """What on a host updates and reboots it by itself, by a timer; the name for flags."""

    UNATTENDED_UPGRADES = "unattended-upgrades"
    BOOTC = "bootc"


RIVALS = (*Rival, *SelfReboot)

# What it does, and how that is ended on the host.
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
class Coordinator:
    """One that may reboot nodes. `rival` is the name for flags.

    `holders` are those that have its lock now: nodes, or whatever somebody wrote there by hand.
    `locked` tells a lock that nobody else can have, and that does not expire.
    """

    rival: str
    kind: str
    namespace: str
    name: str
    holders: tuple[str, ...] = ()
    locked: bool = False
