"""The answers that stand in for the right one where a fault strikes."""

from collections.abc import Mapping

from rollout.lab.api.endpoints import Answer
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.representation import encoded
from rollout.lab.api.statuses import StatusError

_BAD_REQUEST, _FORBIDDEN, _CONFLICT, _INVALID, _TOO_MANY = 400, 403, 409, 422, 429
_INTERNAL, _UNAVAILABLE, _TIMEOUT = 500, 503, 504
_DENIED = 'admission webhook "evictions.lab" denied the request: the pod is being moved'
_TEXT = "text/plain; charset=utf-8"


_REFUSALS: Mapping[FaultAnswer, tuple[int, str, str]] = {
    FaultAnswer.UNAVAILABLE: (
        _UNAVAILABLE,
        "ServiceUnavailable",
        "the server is currently unable to handle the request",
    ),
    FaultAnswer.BAD_REQUEST: (_BAD_REQUEST, "BadRequest", "the request is not understood"),
    FaultAnswer.CONFLICT: (
        _CONFLICT,
        "Conflict",
        "the object has been modified; please apply your changes to the latest version and try again",
    ),
    FaultAnswer.INVALID: (_INVALID, "Invalid", "the object is invalid: an admission webhook says so"),
    FaultAnswer.FORBIDDEN: (_FORBIDDEN, "Forbidden", 'admission webhook "policy.lab" denied the request: it is frozen'),
    FaultAnswer.NO_DRY_RUN: (_BAD_REQUEST, "BadRequest", 'admission webhook "policy.lab" does not support dry run'),
    FaultAnswer.DENIED: (_TOO_MANY, "TooManyRequests", _DENIED),
    FaultAnswer.DENIED_ERROR: (_INTERNAL, "InternalError", _DENIED),
}


def faulty_answer(fault: ApiFault) -> Answer | None:
    """The answer that a fault gives; None for faults that are no answer."""
    if fault.answer in _REFUSALS:
        return _refusal(StatusError(*_REFUSALS[fault.answer]))
    match fault.answer:
        case FaultAnswer.TOO_MANY_REQUESTS:
            return _flow_control(fault.retry_after)
        case FaultAnswer.INTERNAL_ERROR:
            return _refusal(_internal_error())
        case FaultAnswer.TIMEOUT:
            message = "Timeout: request did not complete within the allotted timeout"
            return _refusal(StatusError(_TIMEOUT, "Timeout", message, details={}))
        case FaultAnswer.BUDGET_CONFLICT:
            return _refusal(_budget_conflict(fault.retry_after))
        case _:
            return None


def _flow_control(retry_after: int) -> Answer:
    """Flow control refuses before the API proper is reached: no Status, only a line of text."""
    text = b"Too many requests, please try again later.\n"
    return Answer(_TOO_MANY, text, _TEXT, {"Retry-After": str(retry_after), "X-Content-Type-Options": "nosniff"})


def _budget_conflict(retry_after: int) -> StatusError:
    message = "Timeout: couldn't update PodDisruptionBudget due to conflicts"
    return StatusError(
        _TIMEOUT,
        "Timeout",
        message,
        details={"retryAfterSeconds": retry_after},
        headers={"Retry-After": str(retry_after)},
    )


def _internal_error() -> StatusError:
    why = "etcdserver: request timed out"
    return StatusError(
        _INTERNAL,
        "InternalError",
        f"Internal error occurred: {why}",
        details={"causes": [{"message": why}]},
    )


def _refusal(error: StatusError) -> Answer:
    return Answer(error.code, encoded(error.body()), headers=error.headers)
