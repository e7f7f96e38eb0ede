"""The short question asked of a host that is coming up: which boot is this, of which machine and version?

The full probe would wait for update_engine, which starts late.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rollout.gather.hosts.answer import assignments, sections
from rollout.gather.hosts.engine_status import version
from rollout.gather.hosts.probe_command import MARKER
from rollout.ports import CommandResult

# Fedora's VERSION is a sentence, and its VERSION_ID the same for every update of a release.
_KEYS = ("OSTREE_VERSION", "VERSION", "VERSION_ID")
# What stands before the first marker is a login shell's: it may print an id of its own, which a reboot would be
# proven by.
BOOT_COMMAND = f"""
echo; echo '{MARKER} boot'; cat /proc/sys/kernel/random/boot_id
echo; echo '{MARKER} machine'; cat /etc/machine-id
echo; echo '{MARKER} release'; cat /etc/os-release || cat /usr/lib/os-release
""".strip()

_BOOT_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MACHINE_ID = re.compile(r"[0-9a-f]{32}")


def running_version(os_release: Mapping[str, str]) -> str:
    """Return the most exact one that has the form of a version; empty where none has."""
    return next(filter(None, (version(os_release.get(key, "")) for key in _KEYS)), "")


@dataclass(frozen=True, slots=True)
class BootFacts:
    """The kernel's boot id, systemd's machine id (empty where it cannot be read), and the version of os-release."""

    boot_id: str
    machine_id: str
    version: str


def parse_boot(result: CommandResult) -> BootFacts | None:
    """Facts in the answer, or None where it holds no boot id."""
    answers = sections(result.stdout)
    boot_id = _BOOT_ID.search(answers.get("boot", ""))
    if boot_id is None:
        return None
    release = assignments(answers.get("release", ""))
    return BootFacts(
        boot_id[0],
        machine_id(answers.get("machine", "")),
        running_version(release),
    )


def machine_id(text: str) -> str:
    """Return the text as a machine id is written in the API, else empty."""
    plain = text.strip().replace("-", "").lower()
    return plain if _MACHINE_ID.fullmatch(plain) else ""
