from enum import StrEnum

from msgspec import Struct


class Rival(StrEnum):
    """Reboot coordinators, as named in flags."""

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
    BOOTC_OPERATOR = "bootc-operator"
    KAIROS = "kairos-operator"
    NODEWRIGHT = "nodewright"
    NVSENTINEL = "nvsentinel"
    NVIDIA_MAINTENANCE = "maintenance-operator"
    MEDIK8S_MAINTENANCE = "node-maintenance-operator"
    MAINTENANCE_ORCHESTRATOR = "node-maintenance-orchestrator"
    LOCKSMITHD = "locksmithd"
    ZINCATI = "zincati"


class SelfReboot(StrEnum):
    """Software that reboots its host, as named in flags."""

    UNATTENDED_UPGRADES = "unattended-upgrades"
    BOOTC = "bootc"
    RPM_OSTREE = "rpm-ostree"
    SYSUPDATE = "systemd-sysupdate"
    REBOOTMGR = "rebootmgr"
    DNF = "dnf-automatic"


RIVALS = (*Rival, *SelfReboot)

# What each does, and how to stop it.
SELF_REBOOTS = {
    SelfReboot.UNATTENDED_UPGRADES: (
        "unattended-upgrades reboots the host by itself",
        'set Unattended-Upgrade::Automatic-Reboot "false" in /etc/apt/apt.conf.d',
    ),
    SelfReboot.BOOTC: (
        "bootc-fetch-apply-updates.timer updates the host and reboots it by itself",
        "sudo systemctl mask --now bootc-fetch-apply-updates.timer",
    ),
    SelfReboot.RPM_OSTREE: (
        "rpm-ostreed-automatic.timer updates the host and reboots it by itself",
        "set AutomaticUpdatePolicy=stage in /etc/rpm-ostreed.conf and run sudo rpm-ostree reload",
    ),
    SelfReboot.SYSUPDATE: (
        "systemd-sysupdate-reboot.timer reboots the host by itself",
        "sudo systemctl mask --now systemd-sysupdate-reboot.timer",
    ),
    # Without rebootmgr, transactional-update would reboot the host at once.
    SelfReboot.REBOOTMGR: (
        "rebootmgr reboots the host by itself",
        "sudo rebootmgrctl set-strategy off",
    ),
    SelfReboot.DNF: (
        "dnf-automatic updates the host and reboots it by itself",
        "set reboot = never in /etc/dnf/automatic.conf",
    ),
}
STOPPED_BY_SETTING = frozenset(
    {SelfReboot.UNATTENDED_UPGRADES, SelfReboot.RPM_OSTREE, SelfReboot.DNF}
)


class TriggerResource(Struct, frozen=True):
    """Without objects of it, a coordinator does nothing."""

    plural: str
    group: str
    version: str

    @property
    def path(self) -> str:
        """Return the objects' path."""
        return f"/apis/{self.group}/{self.version}/{self.plural}"


# https://github.com/Mellanox/maintenance-operator, api/v1alpha1/groupversion_info.go;
# https://github.com/medik8s/node-maintenance-operator, api/v1beta1/groupversion_info.go;
# https://github.com/Nils-Svensson/node-maintenance-orchestrator, api/v1alpha1/groupversion_info.go
TRIGGERS = {
    Rival.UPGRADE_CONTROLLER: TriggerResource("plans", "upgrade.cattle.io", "v1"),
    Rival.NVIDIA_MAINTENANCE: TriggerResource(
        "nodemaintenances", "maintenance.nvidia.com", "v1alpha1"
    ),
    Rival.MEDIK8S_MAINTENANCE: TriggerResource(
        "nodemaintenances", "nodemaintenance.medik8s.io", "v1beta1"
    ),
    Rival.MAINTENANCE_ORCHESTRATOR: TriggerResource(
        "nodemaintenanceplans", "maintenance.nmoo.io", "v1alpha1"
    ),
}


class LockAnnotation(Struct, frozen=True):
    """kured's lock for `owners` nodes."""

    name: str
    owners: int = 1


class Coordinator(Struct, frozen=True):
    """An object that runs another coordinator."""

    rival: str
    kind: str
    namespace: str
    name: str
    # Nodes, or a person's text.
    holders: tuple[str, ...] = ()
    # All of the lock is held, and does not expire.
    locked: bool = False
    # Taking this lock pauses the coordinator.
    lock: LockAnnotation | None = None
