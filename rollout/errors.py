"""Every error an operator can meet.

A `RolloutError` is a sentence for the operator, a hint about what to do, and the exit code that the
command ends with. Adapters map foreign exceptions to this tree at exactly one place each and keep
the original as `__cause__`, which `-v` shows.

    RolloutError                      1
    ├── UsageError                    64  flags, counts, durations, configuration
    ├── InputError                    1   a file the operator named cannot be used
    │   ├── KubeconfigError
    │   ├── InventoryError
    │   ├── ScenarioError
    │   └── PlanFileError
    ├── ApiError                      1   the API server answered with a failure
    │   ├── ApiUnavailableError           … or did not answer
    │   ├── ApiConflictError              409: the object changed meanwhile
    │   ├── ApiNotFoundError              404
    │   ├── ApiGoneError                  410: a resourceVersion or continue token too old
    │   └── TooManyRequestsError          429: a disruption budget, or flow control
    ├── SshError                      1   a host could not be asked
    │   ├── SshUnreachableError           no route, closed
    │   │   └── SshRefusedError               nothing listens at its port
    │   ├── SshTimeoutError
    │   ├── SshAuthError
    │   └── HostKeyError                  unknown, or changed
    ├── GateError                     1   what was to be asked before going on could not be asked
    ├── StepError                     4   a node's step failed; ends that node, never the program
    │   ├── DrainError
    │   ├── RebootError
    │   └── FencedError                   the Lease is lost: nothing further may be done
    ├── DeclinedError                 3   the operator could not be asked
    │   └── NotConfirmedError                 … was asked and did not say yes
    ├── StalePlanError                5   the cluster is not what the plan was made for
    ├── BlockedError                  6   something blocks the start
    │   └── LockedError                   … another rollout: it holds the lock, or is unfinished
    └── InterruptedRunError           130 stopped by a signal before anything was begun
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
    """A failure told in one sentence, with a hint. `details` are lines of their own, safe to print.

    `see` are commands to run, or logs to look at; the hint begins with them. `fixes` are the parts
    of the hint.
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
        looks = f"See: {'; '.join(see)}" if see else ""
        self.hint = "; ".join(filter(None, (looks, hint)))
        self.fixes = (*see, hint) if hint else tuple(see)
        self.details = details


class UsageError(RolloutError):
    """The command line, the environment or the configuration file says something impossible."""

    exit_code = ExitCode.USAGE


class InputError(RolloutError):
    """A file that the operator named cannot be used."""


class KubeconfigError(InputError):
    """No kubeconfig, a broken one, or no such context."""


class InventoryError(InputError):
    """An inventory file that cannot be read or understood."""


class ScenarioError(InputError):
    """A lab scenario that cannot be read or understood."""


class PlanFileError(InputError):
    """A plan file that is truncated, edited, of a newer format, or of another cluster."""


@dataclass(frozen=True, slots=True)
class ApiCause:
    """One entry of a Status answer's `details.causes`."""

    reason: str = ""
    message: str = ""


class DenierKind(StrEnum):
    """What denied a request that its user has the right to send."""

    WEBHOOK = "webhook"
    POLICY = "policy"


@dataclass(frozen=True, slots=True)
class AdmissionDenial:
    """A denial by an admission webhook or a ValidatingAdmissionPolicy; `message` is empty if it gave no reason."""

    kind: DenierKind
    name: str
    message: str = ""


class ApiError(RolloutError):
    """The API server answered with a failure.

    `status` is the HTTP status (0: no answer), `reason` and `causes` come from the Status body;
    `retry_after` is in seconds, None where the server named none. `denial` is set if the request
    was denied at admission: then the status is whatever the webhook or the policy chose.
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
        """Whether this user has not the right."""
        return self.status == HTTPStatus.FORBIDDEN

    def has_cause(self, reason: str) -> bool:
        """Whether one of the causes carries this reason word."""
        return any(cause.reason == reason for cause in self.causes)


class ApiUnavailableError(ApiError):
    """No usable answer: connection refused or lost, time-out, or a 5xx that asks to come back."""


class ApiConflictError(ApiError):
    """409: the object is not the one, or not in the version, that the request named."""


class ApiNotFoundError(ApiError):
    """404: no such object."""


class ApiGoneError(ApiError):
    """410: the resourceVersion or continue token is too old; list afresh."""


class TooManyRequestsError(ApiError):
    """429: a disruption budget does not allow the eviction now, or flow control asks for patience."""


class SshError(RolloutError):
    """A host could not be asked over SSH."""


class SshUnreachableError(SshError):
    """The connection was refused, had no route, or broke."""


class SshRefusedError(SshUnreachableError):
    """Nothing listens at the host's SSH port."""


class SshTimeoutError(SshError):
    """The host did not answer before its deadline."""


class SshAuthError(SshError):
    """The host refused the user or the key."""


class HostKeyError(SshError):
    """The host's key is unknown, or not the one on file; `summary` is the message without keys."""

    def __init__(self, message: str, *, hint: str = "", summary: str = "") -> None:
        super().__init__(message, hint=hint)
        self.summary = summary


class GateError(RolloutError):
    """What was to be asked before going on could not be asked: that counts as a no."""


class StepError(RolloutError):
    """One node's step failed: it ends that node's run, never the program."""

    exit_code = ExitCode.PARTIAL


class DrainError(StepError):
    """Pods could not be moved away: refused beforehand, blocked, or still there at the deadline.

    `needed_seconds` is the drain timeout with which they would have had time to terminate; 0 if
    that would not help.
    """

    def __init__(
        self, message: str, *, hint: str = "", see: Sequence[str] = (), needed_seconds: int = 0
    ) -> None:
        super().__init__(message, hint=hint, see=see)
        self.needed_seconds = needed_seconds


class RebootError(StepError):
    """The reboot could not be started, or not be proven."""


class FencedError(StepError):
    """This process no longer holds the Lease: it may not cordon, evict, reboot or uncordon."""


class DeclinedError(RolloutError):
    """The operator was asked and did not say yes, or could not be asked."""

    exit_code = ExitCode.DECLINED


class NotConfirmedError(DeclinedError):
    """The operator was asked and did not say yes. This is not reported as an error."""


class StalePlanError(RolloutError):
    """The cluster is not what the plan was made for."""

    exit_code = ExitCode.STALE


class BlockedError(RolloutError):
    """Another rollout holds the lock, or something blocks the start."""

    exit_code = ExitCode.BLOCKED


class LockedError(BlockedError):
    """Another rollout is running or unfinished: whoever can wait for its end need not call this a failure."""


class InterruptedRunError(RolloutError):
    """The run was stopped by a signal before anything was begun."""

    exit_code = ExitCode.INTERRUPTED
