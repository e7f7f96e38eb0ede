from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rollout.lab.hosts.faults import UpdateFault
from rollout.model.host import NO_VERSION, UpdateOperation


class System(StrEnum):
    FLATCAR = "flatcar"
    FEDORA_COREOS = "fedora-coreos"
    FEDORA_BOOTC = "fedora-bootc"
    UBUNTU = "ubuntu"


_PRETTY_NAMES: Final[Mapping[System, str]] = {
    System.FLATCAR: "Flatcar Container Linux by Kinvolk {version} (Oklo)",
    System.FEDORA_COREOS: "Fedora CoreOS {version}",
    System.FEDORA_BOOTC: "Fedora Linux {version}",
    System.UBUNTU: "Ubuntu {version} LTS",
}
_OS_RELEASES: Final[Mapping[System, str]] = {
    System.FLATCAR: """\
NAME="Flatcar Container Linux by Kinvolk"
ID=flatcar
ID_LIKE=coreos
VERSION={version}
VERSION_ID={version}
BUILD_ID=2025-06-13-0151
PRETTY_NAME="{pretty}"
""",
    System.FEDORA_COREOS: """\
NAME="Fedora Linux"
VERSION="{version} (CoreOS)"
ID=fedora
VERSION_ID={major}
PRETTY_NAME="{pretty}"
VARIANT="CoreOS"
VARIANT_ID=coreos
OSTREE_VERSION='{version}'
""",
    System.FEDORA_BOOTC: """\
NAME="Fedora Linux"
VERSION="{version}"
ID=fedora
VERSION_ID={major}
PRETTY_NAME="{pretty}"
OSTREE_VERSION='{version}'
""",
    System.UBUNTU: """\
PRETTY_NAME="{pretty}"
NAME="Ubuntu"
VERSION_ID="{version}"
VERSION="{version} LTS (Noble Numbat)"
ID=ubuntu
ID_LIKE=debian
""",
}


def image_name(version: str, system: System) -> str:
    """Return the image, which is also a Node's `osImage`."""
    return _PRETTY_NAMES[system].format(version=version)


def os_release(version: str, system: System) -> str:
    pretty = image_name(version, system)
    major = version.partition(".")[0]
    return _OS_RELEASES[system].format(version=version, major=major, pretty=pretty)


def next_version(version: str) -> str:
    before, dot, last = version.rpartition(".")
    return f"{before}{dot}{int(last) + 1}"


_PAYLOAD_BYTES: Final = 465_881_871
_STEP_SHARE = 0.1
# A faulty download fails or stalls here.
_FAULT_PROGRESS = 0.4


_NEXT: Final = {
    UpdateOperation.AVAILABLE: UpdateOperation.DOWNLOADING,
    UpdateOperation.VERIFYING: UpdateOperation.FINALIZING,
    UpdateOperation.FINALIZING: UpdateOperation.NEED_REBOOT,
}


@dataclass(slots=True)
class UpdateEngine:
    """`staged` is the version on the other partition, `available` the server's.

    `marked` is the marker file in /run, from which a restarted (`forgetful`) engine knows that an
    update is staged.
    """

    operation: UpdateOperation = UpdateOperation.IDLE
    progress: float = 0.0
    staged: str | None = None
    available: str | None = None
    last_checked: int = 0
    marked: bool = False
    forgetful: bool = False

    @classmethod
    def with_staged(cls, version: str, *, checked: int) -> "UpdateEngine":
        return cls(
            operation=UpdateOperation.NEED_REBOOT,
            staged=version,
            available=version,
            last_checked=checked,
            marked=True,
        )

    def status(self) -> tuple[int, float, UpdateOperation, str, int]:
        """Return what GetStatus returns (`xdssx`).

        The last check in seconds since the epoch, the progress as a fraction, the operation, the
        version, and its size in bytes.
        """
        if self.forgetful:
            return 0, 0.0, self.operation, NO_VERSION, 0
        version = self.staged or self.available
        size = _PAYLOAD_BYTES
        if version is None or self.operation in (UpdateOperation.IDLE, UpdateOperation.CHECKING):
            version = NO_VERSION
            size = 0
        return self.last_checked, self.progress, self.operation, version, size

    def advance(self, now: int, fault: UpdateFault | None) -> bool:
        """Return whether the attempt continues. `now` is seconds since the epoch."""
        match self.operation:
            case UpdateOperation.CHECKING if fault is UpdateFault.CHECK_FAILS:
                self._enter(UpdateOperation.REPORTING_ERROR)
            case UpdateOperation.CHECKING:
                # The time changes only when the update server has answered.
                self.last_checked = now
                self._enter(UpdateOperation.AVAILABLE if self.available else UpdateOperation.IDLE)
            case UpdateOperation.DOWNLOADING:
                self._download(fault)
            case UpdateOperation.REPORTING_ERROR:
                self.reset()
            case UpdateOperation.IDLE | UpdateOperation.NEED_REBOOT:
                return False
            case _:
                self._enter(_NEXT[self.operation])
        return self.operation not in (UpdateOperation.IDLE, UpdateOperation.NEED_REBOOT)

    def _download(self, fault: UpdateFault | None) -> None:
        if self.progress >= _FAULT_PROGRESS and fault is UpdateFault.DOWNLOAD_FAILS:
            self._enter(UpdateOperation.REPORTING_ERROR)
        elif self.progress >= _FAULT_PROGRESS and fault is UpdateFault.STALLS:
            return
        elif self.progress + _STEP_SHARE < 1:
            self.progress += _STEP_SHARE
        else:
            self._enter(UpdateOperation.VERIFYING)

    def begin_attempt(self) -> bool:
        if self.operation is not UpdateOperation.IDLE:
            return False
        self._enter(UpdateOperation.CHECKING)
        return True

    def reset(self) -> None:
        """As by ResetStatus, the partition keeps its priority."""
        self.operation = UpdateOperation.IDLE
        self.progress = 0.0
        self.marked = False
        self.forgetful = False

    def restart(self) -> None:
        self.forgetful = self.marked
        self.operation = UpdateOperation.NEED_REBOOT if self.marked else UpdateOperation.IDLE
        self.progress = 0.0

    def boot(self, version: str) -> None:
        if version == self.available:
            self.available = None
        self.staged = None
        self.last_checked = 0
        self.reset()

    def _enter(self, operation: UpdateOperation) -> None:
        self.operation = operation
        self.progress = 0.0
        if operation is UpdateOperation.NEED_REBOOT:
            self.staged = self.available
            self.marked = True
