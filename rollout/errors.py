"""Every error that an operator can meet.

A `RolloutError` has a sentence for the operator, a hint about what to do, and the command's exit
code. Each adapter maps foreign exceptions to this tree in exactly one place, and keeps the original
as `__cause__`, which `-v` shows.

    RolloutError                      1
    ├── UsageError                    64  flags, counts, durations, configuration
    ├── InputError                    1   a file the operator named cannot be used
    │   ├── KubeconfigError
    │   ├── InventoryError
    │   ├── ScenarioError
    │   └── PlanFileError
    ├── ApiError                      1   the API server answered with a failure
    │   ├── ApiUnavailableError           … or did not respond
    │   ├── ApiConflictError              409: the object changed meanwhile
    │   ├── ApiNotFoundError              404
    │   ├── ApiGoneError                  410: a resourceVersion or continue token too old
    │   └── TooManyRequestsError          429: a disruption budget, or flow control
    ├── SshError                      1   a command could not be run on a host
    │   ├── SshUnreachableError           closed, not SSH
    │   │   ├── SshRefusedError               nothing listens at its port
    │   │   └── SshNoRouteError               … or no packet reaches it
    │   ├── SshTimeoutError
    │   ├── SshAuthError
    │   └── HostKeyError                  unknown, or changed
    ├── GateError                     1   a gate could not be asked
    ├── StepError                     4   a node's step failed; ends that node, never the program
    │   ├── DrainError
    │   ├── RebootError
    │   └── FencedError                   the Lease is lost: nothing further may be done
    ├── DeclinedError                 3   the operator could not be asked
    │   └── NotConfirmedError                 … was asked and did not confirm
    ├── StalePlanError                5   the cluster has changed since the plan was made
    ├── BlockedError                  6   something blocks the start
    │   └── LockedError                   … another rollout: it holds the lock, or is unfinished
    └── InterruptedRunError           130 stopped by a signal before anything was started
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from http import HTTPStatus


class ExitCode(IntEnum):
    """What the process ends with; part of the interface."""

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
    """A failure as one sentence with a hint. `details` are further lines, safe to print.

    `see` are commands to run, or logs to read; the hint begins with them. `fixes` are the parts of
    the hint.
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
        self.fixes = (*see, hint) if hint else tuple(see)
        fixes = "; ".join(self.fixes)
        self.hint = f"See: {fixes}" if see else fixes
        self.details = details


class UsageError(RolloutError):
    """The command line, the environment or the configuration file is invalid."""

    exit_code = ExitCode.USAGE


class InputError(RolloutError):
    """A file that the operator named cannot be used."""


class KubeconfigError(InputError):
    """The kubeconfig is missing or invalid, or has no such context."""


class InventoryError(InputError):
    """An inventory file cannot be read or is invalid."""


class ScenarioError(InputError):
    """A lab scenario cannot be read or is invalid."""


class PlanFileError(InputError):
    """A plan file is incomplete, edited, of a newer format, or of another cluster."""


@dataclass(frozen=True, slots=True)
class ApiCause:
    """An entry of `details.causes` in a Status answer."""

    reason: str = ""
    message: str = ""


class DenierKind(StrEnum):
    """What denied a request that the user has the right to send."""

    WEBHOOK = "webhook"
    POLICY = "policy"


@dataclass(frozen=True, slots=True)
class AdmissionDenial:
    """A denial at admission; `message` is empty if it gave no reason."""

    kind: DenierKind
    name: str
    message: str = ""


class ApiError(RolloutError):
    """The API server answered with a failure.

    `status` is the HTTP status (0: no response); `reason` and `causes` are from the Status body.
    `retry_after` is in seconds, None if the server sent none. `denial` is set if the request was
    denied at admission, where the webhook or policy chooses the status.
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
    """No usable answer: the connection failed, timed out, or the server is overloaded (5xx)."""


class ApiConflictError(ApiError):
    """409: the object changed, or is not the one that the request named."""


class ApiNotFoundError(ApiError):
    """404: no such object."""


class ApiGoneError(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class TooManyRequestsError(ApiError):
    """429: a disruption budget allows no eviction now, or flow control asks to retry later."""


class SshError(RolloutError):
    """A command could not be run on a host over SSH."""


class SshUnreachableError(SshError):
    """The connection was refused, had no route, or broke."""


class SshRefusedError(SshUnreachableError):
    """Nothing listens at the host's SSH port."""


class SshNoRouteError(SshUnreachableError):
    """No packet reaches the host, as while a machine of the same network is down."""


class SshTimeoutError(SshError):
    """The host did not respond in time."""


class SshAuthError(SshError):
    """The host refused the user or the key."""


class HostKeyError(SshError):
    """The host's key is unknown or has changed; `summary` is the message without keys."""

    def __init__(self, message: str, *, hint: str = "", summary: str = "") -> None:
        super().__init__(message, hint=hint)
        self.summary = summary


class GateError(RolloutError):
    """A gate could not be asked, which counts as a refusal."""


class StepError(RolloutError):
    """A step of one node failed, which ends that node's run, never the program."""

    exit_code = ExitCode.PARTIAL


class DrainError(StepError):
    """The drain refused to evict pods, or they did not terminate in time.

    `needed_seconds` is the drain timeout with which they would have had time to terminate; 0 if a
    longer one would not help.
    """

    def __init__(
        self, message: str, *, hint: str = "", see: Sequence[str] = (), needed_seconds: int = 0
    ) -> None:
        super().__init__(message, hint=hint, see=see)
        self.needed_seconds = needed_seconds


class RebootError(StepError):
    """The reboot could not be started or could not be proven."""


class FencedError(StepError):
    """This process no longer holds the Lease: it may not cordon, evict, reboot or uncordon."""


class DeclinedError(RolloutError):
    """The operator did not confirm, or could not be asked."""

    exit_code = ExitCode.DECLINED


class NotConfirmedError(DeclinedError):
    """The operator was asked and did not confirm. This is not reported as an error."""


class StalePlanError(RolloutError):
    """The cluster has changed since the plan was made."""

    exit_code = ExitCode.STALE


class BlockedError(RolloutError):
    """Another rollout holds the lock, or something blocks the start."""

    exit_code = ExitCode.BLOCKED


class LockedError(BlockedError):
    """Another rollout is running or unfinished; a caller that can wait need not fail."""


class InterruptedRunError(RolloutError):
    """A signal stopped the run before anything was started."""

    exit_code = ExitCode.INTERRUPTED
