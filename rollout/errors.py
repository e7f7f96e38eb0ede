"""Errors for the operator; adapters map foreign exceptions."""

from collections.abc import Sequence
from enum import IntEnum, StrEnum
from http import HTTPStatus

from msgspec import Struct


class ExitCode(IntEnum):
    """Exit codes, a published interface."""

    OK = 0
    ERROR = 1
    CHANGES = 2
    DECLINED = 3
    PARTIAL = 4
    STALE = 5
    BLOCKED = 6
    USAGE = 64
    INTERRUPTED = 130


class RolloutError(Exception):
    """`see` (commands to run or logs to read) precedes `hint`."""

    exit_code = ExitCode.ERROR

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        see: Sequence[str] = (),
        details: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        # One a line in summaries.
        self.fixes = (*see, hint) if hint else tuple(see)
        fixes = "; ".join(self.fixes)
        self.hint = f"See: {fixes}" if see else fixes
        self.details = details


class UsageError(RolloutError):
    exit_code = ExitCode.USAGE


class InputError(RolloutError):
    """A file cannot be used."""


class KubeconfigError(InputError):
    """The file is invalid, or lacks the context."""


class InventoryError(InputError):
    pass


class ScenarioError(InputError):
    pass


class PlanFileError(InputError):
    """The file is incomplete, edited, too new or foreign."""


class ApiCause(Struct, frozen=True):
    """An entry of a Status's `details.causes`."""

    reason: str = ""
    message: str = ""


class DenierKind(StrEnum):
    WEBHOOK = "webhook"
    POLICY = "policy"


class AdmissionDenial(Struct, frozen=True):
    """`message` is empty without a reason."""

    kind: DenierKind
    name: str
    message: str = ""


class ApiError(RolloutError):
    """A failure, or no answer (`status` 0).

    `retry_after` is in seconds. The author of a `denial` chose the status.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        causes: tuple[ApiCause, ...] = (),
        retry_after: float | None = None,
        denial: AdmissionDenial | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.reason = reason
        self.causes = causes
        self.retry_after = retry_after
        self.denial = denial

    @property
    def is_forbidden(self) -> bool:
        return self.status == HTTPStatus.FORBIDDEN

    def has_cause(self, reason: str) -> bool:
        return any(cause.reason == reason for cause in self.causes)


class ApiUnavailableError(ApiError):
    """No connection, a timeout, or 5xx."""


class ApiConflictError(ApiError):
    """409: the object has changed or was replaced."""


class ApiNotFoundError(ApiError):
    """404: no such object."""


class ApiGoneError(ApiError):
    """410: a resourceVersion or token expired; list again."""


class TooManyRequestsError(ApiError):
    """429: a budget or flow control refuses."""


class SshError(RolloutError):
    """A command could not be run."""


class SshUnreachableError(SshError):
    """No connection, or a broken one."""


class SshRefusedError(SshUnreachableError):
    """Nothing listens on the port."""


class SshNoRouteError(SshUnreachableError):
    pass


class SshBrokenError(SshUnreachableError):
    """The host answered, and then the connection broke."""


class SshTimeoutError(SshError):
    pass


class SshStalledError(SshTimeoutError):
    """The host answered, and then stalled."""


class SshAuthError(SshError):
    """The host refused the user or key."""


class HostKeyError(SshError):
    """The key is unknown or changed; `summary` omits keys."""

    def __init__(self, message: str, *, hint: str = "", summary: str = "") -> None:
        super().__init__(message, hint=hint)
        self.summary = summary


class GateError(RolloutError):
    """A gate without an answer refuses."""


class StepError(RolloutError):
    """It ends one node's run, never the program."""

    exit_code = ExitCode.PARTIAL


class DrainError(StepError):
    """Pods were not evicted, or did not terminate in time.

    `needed_seconds`: a timeout that suffices; 0 if none does.
    """

    def __init__(
        self, message: str, *, hint: str = "", see: Sequence[str] = (), needed_seconds: int = 0
    ) -> None:
        super().__init__(message, hint=hint, see=see)
        self.needed_seconds = needed_seconds


class RebootError(StepError):
    """A reboot was not started or proved."""


class FencedError(StepError):
    """This process has lost the lock or the Node."""


class DeclinedError(RolloutError):
    """The operator did not confirm, or could not be asked."""

    exit_code = ExitCode.DECLINED


class NotConfirmedError(DeclinedError):
    """The operator did not confirm: no error."""


class StalePlanError(RolloutError):
    """The cluster has changed since the plan."""

    exit_code = ExitCode.STALE


class BlockedError(RolloutError):
    exit_code = ExitCode.BLOCKED


class LockedError(BlockedError):
    """Another rollout is unfinished, so operate skips its pass."""


class InterruptedRunError(RolloutError):
    """A signal or deadline came before anything started."""

    exit_code = ExitCode.INTERRUPTED
