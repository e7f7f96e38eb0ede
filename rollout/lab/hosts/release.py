"""What a release of an operating system says about itself: Flatcar's as a rule.

One version string decides os-release, the kernel and the name that the kubelet reports, so that everything a
simulated host answers changes together when it boots another release.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class System(StrEnum):
    """Which operating system a host runs."""

    FLATCAR = "flatcar"
    FEDORA_COREOS = "fedora-coreos"
    UBUNTU = "ubuntu"


# Name of the image, and /etc/os-release, quoted as the real one is.
_TEXTS: Final[Mapping[System, tuple[str, str]]] = MappingProxyType(
    {
        System.FLATCAR: (
            "Flatcar Container Linux by Kinvolk {version} (Oklo)",
            (
                'NAME="Flatcar Container Linux by Kinvolk"\nID=flatcar\nID_LIKE=coreos\nVERSION={version}\n'
                'VERSION_ID={version}\nBUILD_ID={build}\nPRETTY_NAME="{pretty}"\n'
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
)


@dataclass(frozen=True, slots=True)
class Release:
    """A version with all that the operating system derives from it.

    `pretty_name` is the name of the image, also as a Node's `osImage`; `os_release` the text of /etc/os-release.
    """

    version: str
    kernel: str
    pretty_name: str
    os_release: str


def release_of(version: str, system: System = System.FLATCAR) -> Release:
    """Return the release with this version string."""
    digest = hashlib.sha256(version.encode()).digest()
    kernel = f"6.6.{digest[0] % 100 + 20}-flatcar"
    build = f"2025-{digest[1] % 12 + 1:02}-{digest[2] % 28 + 1:02}-0151"
    pretty, text = _TEXTS[system]
    pretty = pretty.format(version=version)
    os_release = text.format(version=version, major=version.partition(".")[0], build=build, pretty=pretty)
    return Release(version, kernel, pretty, os_release)


def next_version(version: str) -> str:
    """Return the one after it: its last number is one higher."""
    before, dot, last = version.rpartition(".")
    return f"{before}{dot}{int(last) + 1}"
