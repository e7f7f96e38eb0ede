"""What can be wrong with a simulated host.

Each field is one independent way in which hosts misbehave; the defaults are a healthy host.
Scenario files write the fields under `faults:`, tests replace the whole value on a running machine.
"""

from enum import StrEnum

import msgspec

from rollout.model.quantity import Seconds


class RebootFault(StrEnum):
    """What becomes of a reboot."""

    IGNORED = "ignored"
    NEVER_RETURNS = "never-returns"
    ROLLS_BACK = "rolls-back"


class SudoFault(StrEnum):
    """What `sudo -n` says."""

    REFUSED = "refused"
    PASSWORD = "password"  # noqa: S105 - a word of the scenario files, no secret
    NO_TERMINAL = "no-terminal"
    HANGS = "hangs"


class BusFault(StrEnum):
    """What asking update-engine over D-Bus leads to."""

    DENIED = "denied"
    ABSENT = "absent"


class UpdateFault(StrEnum):
    """What becomes of an attempt to update."""

    IGNORED = "ignored"
    CHECK_FAILS = "check-fails"
    DOWNLOAD_FAILS = "download-fails"
    STALLS = "stalls"


class HostKeyFault(StrEnum):
    """How the host's key differs from the one in known_hosts."""

    OTHER = "other"
    CHANGES_AT_REBOOT = "changes-at-reboot"


class SshFault(StrEnum):
    """What a connection meets."""

    CLOSED = "closed"
    KEY_REFUSED = "key-refused"


class HostFaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that is wrong with one host; seconds are simulated ones.

    `inhibited`: somebody blocks its shutdown. `shuts_down_after_seconds`: a reboot is scheduled,
    counted from the boot. `users`, each a name and a terminal (`core pts/0`), are logged in until
    the host goes down, or these faults do; `missing` are programs that the host has not.
    `stages_again`: with every boot the next version is staged, whichever it booted.
    """

    reboot: RebootFault | None = None
    sudo: SudoFault | None = None
    bus: BusFault | None = None
    update: UpdateFault | None = None
    host_key: HostKeyFault | None = None
    ssh: SshFault | None = None
    answer_delay_seconds: Seconds = 0
    garbage: bool = False
    boot_seconds: Seconds | None = None
    reboots_itself_after_seconds: Seconds | None = None
    inhibited: bool = False
    shuts_down_after_seconds: Seconds | None = None
    users: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    stages_again: bool = False


HEALTHY = HostFaults()
