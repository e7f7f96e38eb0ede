"""Errors for the operator. Each adapter maps foreign exceptions to them in one place."""

from collections.abc import Sequence
from enum import IntEnum, StrEnum
from http import HTTPStatus

from msgspec import Struct


class ExitCode(IntEnum):
    """The process's exit codes, a published interface."""

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
    """`see`, commands to run or logs to read, comes before `hint`.

    As in `See: kubectl get node web-1; Uncordon it.`
    """

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
    """A file that the operator named cannot be used."""


class KubeconfigError(InputError):
    """The kubeconfig is missing, invalid, or lacks the context."""


class InventoryError(InputError):
    """The Ansible inventory cannot be read or is invalid."""


class ScenarioError(InputError):
    """The lab's scenario cannot be read or is invalid."""


class PlanFileError(InputError):
    """The plan file is incomplete, edited, too new, or from another cluster."""


class ApiCause(Struct, frozen=True):
    """An entry of `details.causes` in a Status."""

    reason: str = ""
    message: str = ""


class DenierKind(StrEnum):
    WEBHOOK = "webhook"
    POLICY = "policy"


class AdmissionDenial(Struct, frozen=True):
    """By the webhook or policy of this name; `message` is empty without a reason."""

    kind: DenierKind
    name: str
    message: str = ""


class ApiError(RolloutError):
    """The API server answered with a failure, or did not answer (`status` 0).

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
    """No connection, no answer in time, or an overloaded API server (5xx)."""


class ApiConflictError(ApiError):
    """409: the object has changed, or was replaced."""


class ApiNotFoundError(ApiError):
    """404: no such object."""


class ApiGoneError(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class TooManyRequestsError(ApiError):
    """429: a disruption budget allows no eviction, or flow control asks to retry."""


class SshError(RolloutError):
    """A command could not be run on a host."""


class SshUnreachableError(SshError):
    """The connection was refused, had no route, or broke."""


class SshRefusedError(SshUnreachableError):
    """Nothing listens on the SSH port."""


class SshNoRouteError(SshUnreachableError):
    """No packet reaches the host, such as while it is down."""


class SshBrokenError(SshUnreachableError):
    """Something answered at the SSH port, and then the connection broke."""


class SshTimeoutError(SshError):
    """The host did not respond in time."""


class SshStalledError(SshTimeoutError):
    """Something answered at the SSH port, and then did not respond in time."""


class SshAuthError(SshError):
    """The host refused the user or the key."""


class HostKeyError(SshError):
    """The host key is unknown or has changed; `summary` is the message without keys."""

    def __init__(self, message: str, *, hint: str = "", summary: str = "") -> None:
        super().__init__(message, hint=hint)
        self.summary = summary


class GateError(RolloutError):
    """A gate could not be asked, which counts as a refusal."""


class StepError(RolloutError):
    """A step failed, which ends the run of one node, never the program."""

    exit_code = ExitCode.PARTIAL


class DrainError(StepError):
    """Pods could not be evicted, or did not terminate in time.

    `needed_seconds`: a drain timeout that is long enough; 0 if none is.
    """

    def __init__(
        self, message: str, *, hint: str = "", see: Sequence[str] = (), needed_seconds: int = 0
    ) -> None:
        super().__init__(message, hint=hint, see=see)
        self.needed_seconds = needed_seconds


class RebootError(StepError):
    """The reboot could not be started or proved."""


class FencedError(StepError):
    """This process must not act: it lost the lock, or another rollout has marked the Node."""


class DeclinedError(RolloutError):
    """The operator did not confirm, or could not be asked."""

    exit_code = ExitCode.DECLINED


class NotConfirmedError(DeclinedError):
    """The operator did not confirm, which is not reported as an error."""


class StalePlanError(RolloutError):
    """The cluster has changed since the plan was made."""

    exit_code = ExitCode.STALE


class BlockedError(RolloutError):
    exit_code = ExitCode.BLOCKED


class LockedError(BlockedError):
    """Another rollout is running or unfinished, so operate skips its pass."""


class InterruptedRunError(RolloutError):
    """A signal or a deadline stopped the run before it started anything."""

    exit_code = ExitCode.INTERRUPTED
