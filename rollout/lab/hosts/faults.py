from enum import StrEnum

import msgspec

from rollout.model.quantity import Seconds


class RebootFault(StrEnum):
    IGNORED = "ignored"
    NEVER_RETURNS = "never-returns"
    ROLLS_BACK = "rolls-back"


class SudoFault(StrEnum):
    REFUSED = "refused"
    ONLY_REBOOTS = "only-reboots"
    PASSWORD = "password"  # noqa: S105 - a word of the scenario files, no secret
    NO_TERMINAL = "no-terminal"
    HANGS = "hangs"


class BusFault(StrEnum):
    DENIED = "denied"
    ABSENT = "absent"


class UpdateFault(StrEnum):
    IGNORED = "ignored"
    CHECK_FAILS = "check-fails"
    DOWNLOAD_FAILS = "download-fails"
    STALLS = "stalls"


class HostKeyFault(StrEnum):
    OTHER = "other"
    CHANGES_AT_REBOOT = "changes-at-reboot"


class SshFault(StrEnum):
    CLOSED = "closed"
    KEY_REFUSED = "key-refused"


class HostFaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times are simulated seconds.

    `inhibited`: an inhibitor blocks the shutdown. `shuts_down_after_seconds` counts from the boot.
    `users` (`core pts/0`) are logged in until the first reboot. `missing` are absent programs.
    `stages_again`: every boot stages the next version.
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
