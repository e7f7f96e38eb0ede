"""A host's operating system: the release that runs, Flatcar's as a rule, and its update-engine.

One version string decides os-release and the name that the kubelet reports, so that everything a
simulated host answers changes together when it boots another release. Of the engine there are state
and sequence of operations; how the state is printed is the business of the commands that print it,
and whoever owns the clock drives the sequence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rollout.lab.hosts.faults import UpdateFault
from rollout.model.host import NO_VERSION, UpdateOperation


class System(StrEnum):
    """Which operating system a host runs."""

    FLATCAR = "flatcar"
    FEDORA_COREOS = "fedora-coreos"
    UBUNTU = "ubuntu"


# Name of the image, and /etc/os-release, quoted as the real one is.
_TEXTS: Final[Mapping[System, tuple[str, str]]] = {
    System.FLATCAR: (
        "Flatcar Container Linux by Kinvolk {version} (Oklo)",
        (
            'NAME="Flatcar Container Linux by'
            ' Kinvolk"\nID=flatcar\nID_LIKE=coreos\nVERSION={version}\n'
            'VERSION_ID={version}\nBUILD_ID=2025-06-13-0151\nPRETTY_NAME="{pretty}"\n'
        ),
    ),
    System.FEDORA_COREOS: (
        "Fedora CoreOS {version}",
        (
            'NAME="Fedora Linux"\nVERSION="{version} (CoreOS)"\nID=fedora\nVERSION_ID={major}\n'
            'PRETTY_NAME="{pretty}"\nVARIANT="CoreOS"\nVARIANT_ID=coreos\nOSTREE_VERSION=\'{version}\'\n'
        ),
    ),
    System.UBUNTU: (
        "Ubuntu {version} LTS",
        (
            'PRETTY_NAME="{pretty}"\nNAME="Ubuntu"\nVERSION_ID="{version}"\n'
            'VERSION="{version} LTS (Noble Numbat)"\nID=ubuntu\nID_LIKE=debian\n'
        ),
    ),
}


def image_name(version: str, system: System) -> str:
    """Return the name of the image, also as a Node's `osImage`."""
    return _TEXTS[system][0].format(version=version)


def os_release(version: str, system: System) -> str:
    """Return the text of /etc/os-release."""
    pretty = image_name(version, system)
    return _TEXTS[system][1].format(version=version, major=version.partition(".")[0], pretty=pretty)


def next_version(version: str) -> str:
    """Return the one after it: its last number is one higher."""
    before, dot, last = version.rpartition(".")
    return f"{before}{dot}{int(last) + 1}"


_PAYLOAD_BYTES: Final = 465_881_871
# A download takes ten steps of an update.
_STEP_SHARE = 0.1
_TROUBLE_AT = 0.4


_NEXT: Final = {
    UpdateOperation.AVAILABLE: UpdateOperation.DOWNLOADING,
    UpdateOperation.DOWNLOADING: UpdateOperation.VERIFYING,
    UpdateOperation.VERIFYING: UpdateOperation.FINALIZING,
    UpdateOperation.FINALIZING: UpdateOperation.NEED_REBOOT,
}


@dataclass(slots=True)
class UpdateEngine:
    """One host's update-engine: what runs, what is staged, what a check would find.

    `staged` is the version on the other partition with boot priority; `available` is what the
    update server offers. `marked` is the marker file in /run: a restarted engine knows only that,
    not the version.
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
        """Return an engine that has written this version to the other partition."""
        return cls(UpdateOperation.NEED_REBOOT, 0.0, version, version, checked, marked=True)

    def status(self) -> tuple[int, float, UpdateOperation, str, int]:
        """Return what GetStatus does, in the order of its signature `xdssx`.

        That is the time of the last check in seconds since the epoch, the progress as a fraction,
        the operation, the version, and its size in bytes.
        """
        version = self.staged or self.available
        if self.forgetful:
            return 0, 0.0, self.operation, NO_VERSION, 0
        if version is None or self.operation in (UpdateOperation.IDLE, UpdateOperation.CHECKING):
            return self.last_checked, self.progress, self.operation, NO_VERSION, 0
        return self.last_checked, self.progress, self.operation, version, _PAYLOAD_BYTES

    def advance(self, checked: int, fault: UpdateFault | None) -> bool:
        """Take the next step of an update attempt, now in seconds since the epoch, and return whether it goes on."""
        is_in_trouble = (
            self.operation is UpdateOperation.DOWNLOADING and self.progress >= _TROUBLE_AT
        )
        match self.operation:
            case UpdateOperation.CHECKING if fault is UpdateFault.CHECK_FAILS:
                self._enter(UpdateOperation.REPORTING_ERROR)
            case UpdateOperation.CHECKING:
                # only where the update server has said something does this time change
                self.last_checked = checked
                self._enter(UpdateOperation.AVAILABLE if self.available else UpdateOperation.IDLE)
            case UpdateOperation.DOWNLOADING if (
                is_in_trouble and fault is UpdateFault.DOWNLOAD_FAILS
            ):
                self._enter(UpdateOperation.REPORTING_ERROR)
            case UpdateOperation.DOWNLOADING if self.progress + _STEP_SHARE < 1:
                self.progress += 0 if is_in_trouble and fault is UpdateFault.STALLS else _STEP_SHARE
            case UpdateOperation.REPORTING_ERROR:
                self.reset()
            case UpdateOperation.IDLE | UpdateOperation.NEED_REBOOT:
                return False
            case _:
                self._enter(_NEXT[self.operation])
        return self.operation not in (UpdateOperation.IDLE, UpdateOperation.NEED_REBOOT)

    def begin_attempt(self) -> bool:
        """Start checking for an update; False when the engine is busy or already waits for the reboot."""
        if self.operation is not UpdateOperation.IDLE:
            return False
        self._enter(UpdateOperation.CHECKING)
        return True

    def reset(self) -> None:
        """Back to idle, as ResetStatus does: the partition keeps its priority."""
        self.operation = UpdateOperation.IDLE
        self.progress = 0.0
        self.marked = False
        self.forgetful = False

    def restart(self) -> None:
        """Start the process anew within one boot: only the marker file is left of what it knew."""
        self.forgetful = self.marked
        self.operation = UpdateOperation.NEED_REBOOT if self.marked else UpdateOperation.IDLE
        self.progress = 0.0

    def boot(self, version: str) -> None:
        """Note that the host has booted this version: nothing is staged any more, /run is empty."""
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
