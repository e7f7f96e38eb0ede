import ipaddress
import re
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from rollout.model.detection import DEFAULT_SOURCES, Detection, Sign, Source, SourceAnswer
from rollout.model.rivals import SelfReboot
from rollout.model.update_checks import NO_CHECKS, CheckState, UnitState, UpdateChecks, service_text

DEFAULT_SSH_PORT = 22
DEFAULT_SSH_USER = "core"
HIGHEST_PORT = 65535
# These systems always have update_engine.
FLATCAR_FAMILY = frozenset({"flatcar", "coreos"})
# update_engine's answer after a restart with a pending update.
NO_VERSION = "0.0.0"
# Kubelets are not trusted: an address must not become an option or shell code.
_ADDRESS = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z._:%-]*[0-9A-Za-z.])?|::[0-9A-Fa-f:.]*")


def is_address_or_name(text: str) -> bool:
    """Whether the text is safe as an address."""
    return _ADDRESS.fullmatch(text) is not None


def normalize_address(text: str) -> str:
    """Return the usual spelling, with the zone."""
    bare = text.strip().removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return bare.lower().removesuffix(".")
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(address)


def normalize_known_host(text: str) -> str:
    """Return the usual spelling in known_hosts."""
    if text.startswith("[") and "]:" in text:
        address, _, port = text.rpartition("]:")
        return f"[{normalize_address(address)}]:{port}"
    return normalize_address(text)


def port_of(text: str) -> int | None:
    """Return the TCP port, or None."""
    is_number = text.isascii() and text.isdecimal()
    if not is_number or len(text) > len(str(HIGHEST_PORT)):
        return None
    port = int(text)
    return port if 0 < port <= HIGHEST_PORT else None


class Identities(Struct, frozen=True):
    """Keys of an OpenSSH configuration."""

    # `none` disables the default files.
    files: tuple[str, ...] = ()
    # None for the usual agent, empty for none.
    agent: str | None = None
    # IdentitiesOnly: the agent's other keys are ignored.
    only: bool = False


class HostKeyChecking(StrEnum):
    """What to do with an unknown key; a changed one is refused."""

    STRICT = "strict"
    ACCEPT_NEW = "accept-new"


class KeyState(StrEnum):
    """How a key compares with known_hosts."""

    KNOWN = "known"
    NEW = "new"
    CHANGED = "changed"
    REVOKED = "revoked"
    UNREACHABLE = "unreachable"


class HostKeyFiles(Struct, frozen=True):
    """Files of known host keys."""

    # New keys go to the first.
    own: tuple[str, ...]
    system: tuple[str, ...] = ()


class Host(Struct, frozen=True):
    """How to reach a machine."""

    name: str
    address: str
    port: int = DEFAULT_SSH_PORT
    user: str = DEFAULT_SSH_USER
    key_file: str | None = None
    # Its streams are the connection.
    proxy: tuple[str, ...] = ()
    # In known_hosts; empty for the address.
    known_as: str = ""
    known_hosts: HostKeyFiles | None = None
    # In seconds.
    connect_timeout: float | None = None
    identities: Identities = Identities()


class UpdateOperation(StrEnum):
    """What update_engine is doing, in its own terms except for the last two values."""

    IDLE = "UPDATE_STATUS_IDLE"
    CHECKING = "UPDATE_STATUS_CHECKING_FOR_UPDATE"
    AVAILABLE = "UPDATE_STATUS_UPDATE_AVAILABLE"
    DOWNLOADING = "UPDATE_STATUS_DOWNLOADING"
    VERIFYING = "UPDATE_STATUS_VERIFYING"
    FINALIZING = "UPDATE_STATUS_FINALIZING"
    NEED_REBOOT = "UPDATE_STATUS_UPDATED_NEED_REBOOT"
    REPORTING_ERROR = "UPDATE_STATUS_REPORTING_ERROR_EVENT"
    UNKNOWN = "UNKNOWN"
    NOT_ASKED = "NOT_ASKED"


class EngineTrouble(StrEnum):
    """Why the status is missing."""

    NONE = "none"
    MISSING = "missing"
    SILENT = "silent"
    # The bus refused.
    DENIED = "denied"
    OTHER = "other"


class UpdateStatus(Struct, frozen=True):
    """An answer of update_engine."""

    operation: UpdateOperation
    # Empty if unknown.
    new_version: str = ""
    # A download's progress, or why the operation is unknown.
    message: str = ""
    trouble: EngineTrouble = EngineTrouble.NONE
    # By the host's clock. None before the first success.
    last_checked: datetime | None = None

    @property
    def needs_reboot(self) -> bool:
        """Whether an update is staged."""
        return self.operation is UpdateOperation.NEED_REBOOT


_NOTHING_STAGED = {
    UpdateOperation.IDLE: "nothing is staged",
    UpdateOperation.CHECKING: "update_engine is checking for an update",
    UpdateOperation.AVAILABLE: "an update is available, but not downloaded yet",
    UpdateOperation.DOWNLOADING: "an update is being downloaded",
    UpdateOperation.VERIFYING: "a downloaded update is being verified",
    UpdateOperation.FINALIZING: "an update is being finalized",
    UpdateOperation.REPORTING_ERROR: "update_engine is reporting a failed update",
}


class LoggedInUser(Struct, frozen=True):
    """A user at a terminal of a host, as in `who`."""

    name: str
    tty: str

    def __str__(self) -> str:
        return f"{self.name} ({self.tty})"


class RollbackAccess(Struct, frozen=True):
    """Why the user may not roll back; empty if allowed."""

    refusal: str = ""
    fix: str = ""


class HostFacts(Struct, frozen=True):
    """What a probe found. Unknown texts are empty."""

    host: Host
    update: UpdateStatus
    os_id: str
    running_version: str
    group: str
    boot_id: str
    machine_id: str
    locksmithd_active: bool
    may_reboot: bool
    reboot_refusal: str = ""
    reboot_fix: str = ""
    # None unless doctor asks a host that can be rolled back.
    rollback_access: RollbackAccess | None = None
    inhibited_by: str = ""
    # A sentence; empty without one.
    scheduled_shutdown: str = ""
    sources: tuple[Source, ...] = DEFAULT_SOURCES
    # Without update_engine's.
    signs: tuple[Sign, ...] = ()
    # Empty without Zincati.
    zincati_strategy: str = ""
    reboots_itself: tuple[SelfReboot, ...] = ()
    # Without the probe's own; None if unknown.
    users: tuple[LoggedInUser, ...] | None = None
    unasked_sources: tuple[Source, ...] = ()
    engine_unit: UnitState = UnitState()
    locksmithd_unit: UnitState = UnitState()
    checks: UpdateChecks = NO_CHECKS

    @property
    def lacks_engine(self) -> bool:
        """Whether update_engine is missing."""
        return self.update.trouble is EngineTrouble.MISSING

    @property
    def detection(self) -> Detection:
        """Return all signs, in configured order."""
        signs = list(self.signs)
        if Source.UPDATE_ENGINE in self.sources:
            signs.append(self._engine_sign())
        signs.sort(key=lambda sign: self.sources.index(sign.source))
        return Detection(tuple(signs))

    @property
    def image_sign(self) -> Sign | None:
        """Return bootc's answer about the booted image, or None."""
        signs = (sign for sign in self.signs if sign.source is Source.BOOTC and sign.current)
        return next(signs, None)

    @property
    def counts_as_unstaged(self) -> bool:
        """Whether the host surely needs no reboot."""
        detection = self.detection
        if detection.needs_reboot:
            return False
        # A service that is off stages nothing.
        return not detection.unanswered or self.checks.check_state().is_off

    def _engine_sign(self) -> Sign:
        update = self.update
        source = Source.UPDATE_ENGINE
        if update.needs_reboot:
            version = update.new_version
            return Sign(
                source=source,
                answer=SourceAnswer.NEEDED,
                detail=f"{version or 'an update'} is staged",
                version=version,
                target=version,
                current=self.running_version,
            )
        if update.operation is not UpdateOperation.UNKNOWN:
            detail = _NOTHING_STAGED.get(update.operation, "")
            if update.message:
                detail = f"{detail} ({update.message})"
            return Sign(source, SourceAnswer.NOT_NEEDED, detail, current=self.running_version)
        detail = update.message or "update_engine reported no status"
        service_state = self.engine_unit.service_state
        if service_state.is_off:
            detail = service_text("update-engine", service_state)
        is_absent = self.lacks_engine and self.os_id not in FLATCAR_FAMILY
        answer = SourceAnswer.ABSENT if is_absent else SourceAnswer.NONE
        return Sign(source, answer, detail)

    @property
    def zincati_reboots(self) -> bool:
        """Whether Zincati reboots without FleetLock."""
        return self.zincati_strategy not in ("", "fleet_lock")


class ProbeFailureKind(StrEnum):
    """Why a host is unreadable."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    AUTH = "auth"
    HOST_KEY = "host-key"
    NO_ADDRESS = "no-address"
    GARBLED = "garbled"
    # The machine is not, or not only, this Node's.
    WRONG_HOST = "wrong-host"
    # The Node does not confirm its machine.
    UNREPORTED = "unreported"


class ProbeFailure(Struct, frozen=True):
    """A host that could not be read."""

    host: Host
    kind: ProbeFailureKind
    message: str
    hint: str = ""
    # Without keys and addresses.
    summary: str = ""

    @property
    def brief(self) -> str:
        """Return the shortest message."""
        return self.summary or self.message


HostObservation = HostFacts | ProbeFailure


class UpdateState(StrEnum):
    """How a host without a staged update compares with the newest version; enumerated values."""

    UP_TO_DATE = "up-to-date"
    BEHIND = "behind"
    ROLLED_BACK = "rolled-back"
    CHECK_FAILED = "check-failed"
    NOT_CHECKING = "not-checking"
    UPDATING = "updating"
    IDLE = "idle"


class UpdateStanding(Struct, frozen=True):
    """The update state of a host without a staged update; unknown values are empty."""

    state: UpdateState
    # On similar hosts.
    newest_version: str = ""
    rolled_back_from: str = ""
    rolled_back_at: str = ""
    behind: bool = False
    checks: CheckState = CheckState.UNKNOWN
    check_unit: str = ""
    last_checked: str = ""

    @property
    def is_current(self) -> bool:
        """Whether it runs the newest known version."""
        return self.state is UpdateState.UP_TO_DATE
