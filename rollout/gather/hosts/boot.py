"""The short question asked of a host that is coming up: which boot is this, of which version?

The full probe would wait for update_engine, which starts late.
"""

import re
from dataclasses import dataclass

from rollout.gather.hosts.answer import assignments
from rollout.gather.hosts.engine_status import version
from rollout.gather.hosts.probe_command import MARKER
from rollout.ports import CommandResult

# What stands before the marker is a login shell's: it may print an id of its own, which a reboot would be proven by.
_START = f"{MARKER} boot"
BOOT_COMMAND = f"""
echo; echo '{_START}'; cat /proc/sys/kernel/random/boot_id; cat /etc/os-release || cat /usr/lib/os-release
""".strip()

_BOOT_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class BootFacts:
    """The kernel's boot id, and the version of os-release."""

    boot_id: str
    version: str


def parse_boot(result: CommandResult) -> BootFacts | None:
    """Facts in the answer, or None where it holds no boot id."""
    told = result.stdout.partition(_START)[2]
    boot_id = _BOOT_ID.search(told)
    if boot_id is None:
        return None
    release = assignments(told)
    return BootFacts(boot_id[0], version(release.get("VERSION", "")) or version(release.get("VERSION_ID", "")))
