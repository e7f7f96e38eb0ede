"""What a release of an operating system says about itself: Flatcar's as a rule.

One version string decides os-release, the kernel and the name that the kubelet reports, so that everything a
simulated host answers changes together when it boots another release.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, assert_never

CODENAME: Final = "Oklo"


class System(StrEnum):
    """Which operating system a host runs."""

    FLATCAR = "flatcar"
    FEDORA_COREOS = "fedora-coreos"
    UBUNTU = "ubuntu"


# Published kernels and builds; any other version gets a made-up pair of the same shape.
_PUBLISHED: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "3975.2.2": ("6.6.54-flatcar", "2024-10-01-0006"),
        "4081.2.0": ("6.6.60-flatcar", "2024-11-12-2301"),
        "4081.2.1": ("6.6.66-flatcar", "2024-12-16-2028"),
        "4152.2.0": ("6.6.74-flatcar", "2025-01-30-0151"),
        "4152.2.1": ("6.6.83-flatcar", "2025-03-12-0013"),
    }
)


@dataclass(frozen=True, slots=True)
class Release:
    """A version with all that the operating system derives from it."""

    version: str
    kernel: str
    build_id: str
    system: System = System.FLATCAR

    @property
    def pretty_name(self) -> str:
        """The image name, as `PRETTY_NAME` and as a Node's `osImage`."""
        match self.system:
            case System.FLATCAR:
                return f"Flatcar Container Linux by Kinvolk {self.version} ({CODENAME})"
            case System.FEDORA_COREOS:
                return f"Fedora CoreOS {self.version}"
            case System.UBUNTU:
                return f"Ubuntu {self.version} LTS"
            case _:
                assert_never(self.system)

    @property
    def os_release(self) -> str:
        """The text of /etc/os-release, quoted as the real one is."""
        match self.system:
            case System.FLATCAR:
                return self._of_flatcar()
            case System.FEDORA_COREOS:
                return self._of_fedora_coreos()
            case System.UBUNTU:
                return self._of_ubuntu()
            case _:
                assert_never(self.system)

    def _of_fedora_coreos(self) -> str:
        return (
            'NAME="Fedora Linux"\n'
            f'VERSION="{self.version} (CoreOS)"\n'
            "ID=fedora\n"
            f"VERSION_ID={self.version.partition('.')[0]}\n"
            f'PRETTY_NAME="{self.pretty_name}"\n'
            'VARIANT="CoreOS"\n'
            "VARIANT_ID=coreos\n"
            f"OSTREE_VERSION='{self.version}'\n"
        )

    def _of_ubuntu(self) -> str:
        return (
            f'PRETTY_NAME="{self.pretty_name}"\n'
            'NAME="Ubuntu"\n'
            f'VERSION_ID="{self.version}"\n'
            f'VERSION="{self.version} LTS (Noble Numbat)"\n'
            "ID=ubuntu\n"
            "ID_LIKE=debian\n"
        )

    def _of_flatcar(self) -> str:
        return (
            'NAME="Flatcar Container Linux by Kinvolk"\n'
            "ID=flatcar\n"
            "ID_LIKE=coreos\n"
            f"VERSION={self.version}\n"
            f"VERSION_ID={self.version}\n"
            f"BUILD_ID={self.build_id}\n"
            f'PRETTY_NAME="{self.pretty_name}"\n'
        )


def release_of(version: str, system: System = System.FLATCAR) -> Release:
    """The release with this version string."""
    kernel, build_id = _PUBLISHED.get(version) or _invented(version)
    return Release(version=version, kernel=kernel, build_id=build_id, system=system)


def next_version(version: str) -> str:
    """The one after it: its last number is one higher."""
    before, dot, last = version.rpartition(".")
    return f"{before}{dot}{int(last) + 1}"


def _invented(version: str) -> tuple[str, str]:
    digest = hashlib.sha256(version.encode()).digest()
    return f"6.6.{digest[0] % 100 + 20}-flatcar", f"2025-{digest[1] % 12 + 1:02}-{digest[2] % 28 + 1:02}-0151"
