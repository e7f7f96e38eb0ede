"""The answers that stand in for the right one where a fault strikes.

Some have status 200 and are not what an API server gives: pages of proxies, bodies that end early. These tell nothing
of whether the request was carried out: a login page stands before the server, a connection that is cut behind its deed.
"""

from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from aiohttp import web

from rollout.lab.api.endpoints import Answer, Streaming
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.representation import encoded
from rollout.lab.api.statuses import StatusError

_DENIED: Final = 'admission webhook "evictions.lab" denied the request: the pod is being moved'
_HTML: Final = "text/html; charset=utf-8"
_LOGIN_PAGE: Final = b"""<!DOCTYPE html>
<html><head><title>Sign in</title></head>
<body><form method="post" action="/login"><input name="user"><input name="password"></form></body></html>
"""
_HALF_EVENT: Final = b'{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0","reso'
_HALVES: Final = frozenset({FaultAnswer.TRUNCATED, FaultAnswer.BROKEN_OFF})
_REFUSALS: Final[Mapping[FaultAnswer, tuple[int, str, str]]] = {
    FaultAnswer.INTERNAL_ERROR: (500, "InternalError", "Internal error occurred: etcdserver: request timed out"),
    FaultAnswer.UNAVAILABLE: (
        503,
        "ServiceUnavailable",
        "the server is currently unable to handle the request",
    ),
    FaultAnswer.TIMEOUT: (504, "Timeout", "Timeout: request did not complete within the allotted timeout"),
    FaultAnswer.BAD_REQUEST: (400, "BadRequest", "the request is not understood"),
    FaultAnswer.CONFLICT: (
        409,
        "Conflict",
        "the object has been modified; please apply your changes to the latest version and try again",
    ),
    FaultAnswer.INVALID: (422, "Invalid", "the object is invalid: an admission webhook says so"),
    FaultAnswer.FORBIDDEN: (403, "Forbidden", 'admission webhook "policy.lab" denied the request: it is frozen'),
    FaultAnswer.DENIED: (429, "TooManyRequests", _DENIED),
    FaultAnswer.DENIED_ERROR: (500, "InternalError", _DENIED),
    FaultAnswer.BUDGET_CONFLICT: (504, "Timeout", "Timeout: couldn't update PodDisruptionBudget due to conflicts"),
}


def stand_in(fault: ApiFault) -> Answer | None:
    """Return the answer that a fault gives in the server's place; None for faults that are no answer."""
    if fault.answer in _REFUSALS:
        refusal, seconds = StatusError(*_REFUSALS[fault.answer]), fault.retry_after
        if fault.answer is FaultAnswer.BUDGET_CONFLICT:
            refusal.details, refusal.headers = {"retryAfterSeconds": seconds}, {"Retry-After": str(seconds)}
        return Answer(refusal.code, encoded(refusal.body()), headers=refusal.headers)
    match fault.answer:
        case FaultAnswer.TOO_MANY_REQUESTS:
            # Flow control refuses before the API proper is reached: no Status, only a line of text.
            headers = {"Retry-After": str(fault.retry_after), "X-Content-Type-Options": "nosniff"}
            text = b"Too many requests, please try again later.\n"
            return Answer(HTTPStatus.TOO_MANY_REQUESTS, text, "text/plain; charset=utf-8", headers)
        case FaultAnswer.HTML:
            return Answer(HTTPStatus.OK, _LOGIN_PAGE, _HTML)
        case FaultAnswer.EMPTY:
            return Answer(HTTPStatus.OK, b"")
        case FaultAnswer.WRONG_KIND:
            return Answer(HTTPStatus.OK, fault.body.encode() + b"\n")
        case _:
            return None


def is_half(fault: ApiFault) -> bool:
    """Whether the fault cuts the right answer in two."""
    return fault.answer in _HALVES


def half_answer(fault: ApiFault, answer: Answer | Streaming) -> Answer:
    """Return the first half of an answer; of a watch, half of one event."""
    if isinstance(answer, Streaming):
        half = Answer(HTTPStatus.OK, _HALF_EVENT)
    else:
        half = replace(answer, payload=answer.payload[: len(answer.payload) // 2])
    return replace(half, breaks_off=fault.answer is FaultAnswer.BROKEN_OFF)


async def break_off(request: web.BaseRequest, answer: web.Response) -> web.StreamResponse:
    """Announce twice as much as is sent, and end the connection: the client cannot but notice."""
    body = answer.body if isinstance(answer.body, bytes) else b""
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.headers["Content-Length"] = str(2 * len(body) + 2)
    response.force_close()
    await response.prepare(request)
    await response.write(body)
    if request.transport is not None:
        request.transport.close()
    return response
