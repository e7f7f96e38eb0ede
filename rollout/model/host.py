"""Machines and what they said of themselves over SSH."""

import re
from dataclasses import dataclass
from enum import StrEnum

from rollout.model.detection import DEFAULT_SOURCES, Detection, Sign, Source, SourceAnswer
from rollout.model.rivals import SelfReboot

DEFAULT_SSH_PORT = 22
DEFAULT_SSH_USER = "core"
HIGHEST_PORT = 65535
# What a kubelet reports is not trusted: an address is no option for a program, no word of a shell
# and no template. Their os-release IDs: there a missing update_engine is trouble, elsewhere it is
# how things are.
FLATCAR_FAMILY = frozenset({"flatcar", "coreos"})
# What update_engine has for a version where it knows none: after a restart while an update was
# pending.
NO_VERSION = "0.0.0"
_ADDRESS = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z._:%-]*[0-9A-Za-z.])?|::[0-9A-Fa-f:.]*")


def is_address(text: str) -> bool:
    """Whether it could be a host's address or name, and is nothing else to any program that it is handed to."""
    return _ADDRESS.fullmatch(text) is not None


def port_of(text: str) -> int | None:
    """Return a port that can be connected to; None where the text is none."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(HIGHEST_PORT))
    return int(text) if is_number and 0 < int(text) <= HIGHEST_PORT else None


@dataclass(frozen=True, slots=True)
class Identities:
    """What an OpenSSH configuration has the operator log in with: private keys, and the agent's socket.

    `files` of `none` alone leave out all defaults as well. `agent` None is the usual agent, and
    empty none at all; `only` leaves out what else the agent holds.
    """

    files: tuple[str, ...] = ()
    agent: str | None = None
    only: bool = False


class HostKeyChecking(StrEnum):
    """What becomes of a host whose key is not on file; one with another key on file is refused."""

    STRICT = "strict"
    ACCEPT_NEW = "accept-new"


@dataclass(frozen=True, slots=True)
class HostKeyFiles:
    """Files of known host keys: the operator's own, of which the first takes new keys, and those of the system."""

    own: tuple[str, ...]
    system: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """How one machine is reached.

    `name` is the inventory's name for it, or the Node's where the Nodes are the inventory. `proxy`
    is a local command whose input and output are the connection; `known_as` the name to look its
    host key up by, and `known_hosts` the files to look in, where they are not the address and all
    defaults; `connect_timeout` is in seconds.
    """

    name: str
    address: str
    port: int = DEFAULT_SSH_PORT
    user: str = DEFAULT_SSH_USER
    key_file: str | None = None
    proxy: tuple[str, ...] = ()
    known_as: str = ""
    known_hosts: HostKeyFiles | None = None
    connect_timeout: float | None = None
    identities: Identities = Identities()


class UpdateOperation(StrEnum):
    """What update_engine is doing; the words are its own, but for the last two."""

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
    """Why update_engine gave no status: the host has no client of it, nobody answered in time, the bus refused."""

    NONE = "none"
    MISSING = "missing"
    SILENT = "silent"
    DENIED = "denied"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class UpdateStatus:
    """One answer of update_engine.

    `new_version` is empty where the engine does not say, which includes an engine that was
    restarted while an update was pending: it then knows only that a reboot is needed. `message`
    says how far a download is, or why the operation is unknown, and `trouble` of which kind that
    is.
    """

    operation: UpdateOperation
    new_version: str = ""
    message: str = ""
    trouble: EngineTrouble = EngineTrouble.NONE

    @property
    def needs_reboot(self) -> bool:
        """Whether an update is staged and waits for a reboot."""
        return self.operation is UpdateOperation.NEED_REBOOT


_NOTHING_STAGED = {
    UpdateOperation.IDLE: "nothing is staged",
    UpdateOperation.CHECKING: "update_engine is checking for an update",
    UpdateOperation.AVAILABLE: "an update is available, not downloaded yet",
    UpdateOperation.DOWNLOADING: "an update is being downloaded",
    UpdateOperation.VERIFYING: "a downloaded update is being verified",
    UpdateOperation.FINALIZING: "an update is being finalized",
    UpdateOperation.REPORTING_ERROR: "update_engine is reporting a failed update",
}


@dataclass(frozen=True, slots=True)
class LoggedInUser:
    """Somebody at a terminal of a host; `tty` is as `who` names it."""

    name: str
    tty: str

    def __str__(self) -> str:
        """Return the user and where."""
        return f"{self.name} ({self.tty})"


@dataclass(frozen=True, slots=True)
class UnitState:
    """A systemd unit; each state is systemd's own word, empty where systemd did not say.

    `wanted` is whether another unit, a boot's target as a rule, starts it: a distribution may have
    it so by links of its own in /usr, and of a unit like that systemd says that it is disabled.
    `problem` is what kept systemd from it.
    """

    load: str = ""
    active: str = ""
    file: str = ""
    wanted: bool = False
    problem: str = ""

    @property
    def masked(self) -> bool:
        """Whether nothing can start it."""
        return "masked" in (self.load, self.file) or self.file == "masked-runtime"

    @property
    def stays_masked(self) -> bool:
        """Whether nothing can start it after the next boot either: a mask may be in /run, which is gone then."""
        return self.masked and self.file != "masked-runtime"

    @property
    def stays_on(self) -> bool:
        """Whether the next boot starts it, as far as systemd said."""
        return self.wanted or self.file != "disabled"

    @property
    def missing(self) -> bool:
        """Whether the host has no such unit."""
        return self.load == "not-found"

    @property
    def runs(self) -> bool:
        """Whether it runs, or is about to."""
        return self.active in ("active", "activating", "reloading")

    @property
    def known(self) -> bool:
        """Whether systemd said anything of it."""
        return bool(self.load and self.active)


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Everything one probe learnt of a host that answered.

    `boot_id` is the kernel's, `machine_id` systemd's; `may_reboot` is whether this user may run
    `systemctl reboot`, `reboot_refusal` why not, and `reboot_fix` what to do. `inhibited_by` says
    who blocks a shutdown and why, `shutdown_pending` which one somebody else has scheduled; both
    are empty where there is none.
    `zincati` is the strategy by which Zincati reboots the host, empty where it does not;
    `reboots_itself` what else on it does so. `users` are those who are logged in, without the one
    who asked; None where the host does not tell. `group` is the update group. `sources` are those
    that were asked whether a reboot is needed; `signs` what they say, but for update_engine, which
    says it in `update`. `shows` are sources that were not asked, and that the host shows it has.
    `units` are update-engine and locksmithd, where the probe asked for them.
    """

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
    inhibited_by: str = ""
    shutdown_pending: str = ""
    sources: tuple[Source, ...] = DEFAULT_SOURCES
    signs: tuple[Sign, ...] = ()
    zincati: str = ""
    reboots_itself: tuple[SelfReboot, ...] = ()
    users: tuple[LoggedInUser, ...] | None = None
    shows: tuple[Source, ...] = ()
    units: tuple[UnitState, UnitState] = (UnitState(), UnitState())

    @property
    def lacks_engine(self) -> bool:
        """Whether update_engine was asked, and is not on the host."""
        return self.update.trouble is EngineTrouble.MISSING

    @property
    def detection(self) -> Detection:
        """What all sources say together."""
        engine = (self._engine_sign(),) if Source.UPDATE_ENGINE in self.sources else ()
        return Detection(
            tuple(sorted((*engine, *self.signs), key=lambda sign: self.sources.index(sign.source)))
        )

    def _engine_sign(self) -> Sign:
        update = self.update
        source = Source.UPDATE_ENGINE
        if update.needs_reboot:
            version = update.new_version
            detail = f"{version or 'an update'} is staged"
            return Sign(
                source,
                SourceAnswer.NEEDED,
                detail,
                version,
                target=version,
                current=self.running_version,
            )
        if update.operation is not UpdateOperation.UNKNOWN:
            said = _NOTHING_STAGED.get(update.operation, "")
            detail = f"{said} ({update.message})" if update.message else said
            return Sign(source, SourceAnswer.NOT_NEEDED, detail, current=self.running_version)
        is_absent = self.lacks_engine and self.os_id not in FLATCAR_FAMILY
        detail = update.message or "update_engine gave no status"
        return Sign(source, SourceAnswer.ABSENT if is_absent else SourceAnswer.NONE, detail)

    @property
    def zincati_reboots(self) -> bool:
        """Whether Zincati asks no FleetLock server before it reboots the host."""
        return self.zincati not in ("", "fleet_lock")


class ProbeFailureKind(StrEnum):
    """Why a host gave no facts that may be used.

    `WRONG_HOST`: it is surely not the Node's machine alone; `UNREPORTED`: the Node does not say
    that it is.
    """

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    AUTH = "auth"
    HOST_KEY = "host-key"
    NO_ADDRESS = "no-address"
    GARBLED = "garbled"
    WRONG_HOST = "wrong-host"
    UNREPORTED = "unreported"


@dataclass(frozen=True, slots=True)
class ProbeFailure:
    """A host that gave no facts, and why, in a sentence and a hint for the operator.

    `summary` is the message without keys and addresses; empty if it has none.
    """

    host: Host
    kind: ProbeFailureKind
    message: str
    hint: str = ""
    summary: str = ""

    @property
    def brief(self) -> str:
        """Return the shortest message."""
        return self.summary or self.message


HostObservation = HostFacts | ProbeFailure


class UpdateState(StrEnum):
    """How a host without a staged update compares with the newest version of its cluster; fixed words."""

    UP_TO_DATE = "up-to-date"
    BEHIND = "behind"
    ROLLED_BACK = "rolled-back"
    CHECK_FAILED = "check-failed"
    UPDATING = "updating"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class UpdateStanding:
    """The state of a host without a staged update, with its details.

    `newest_version` is the newest version that the cluster runs or has staged for hosts like this
    one, empty if unknown. `rolled_back_from` and `rolled_back_at` (RFC 3339) are set only for a
    rolled-back host.
    """

    state: UpdateState
    newest_version: str = ""
    rolled_back_from: str = ""
    rolled_back_at: str = ""

    @property
    def is_current(self) -> bool:
        """Whether the host runs the newest version that the cluster knows of."""
        return self.state is UpdateState.UP_TO_DATE
