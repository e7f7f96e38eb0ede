"""Answers with status 200 that are not what an API server gives: pages of proxies, bodies that end early.

They tell nothing of whether the request was carried out: a login page stands before the server, a connection that is
cut stands behind its deed.
"""

from dataclasses import replace
from http import HTTPStatus

from aiohttp import web

from rollout.lab.api.endpoints import Answer, Streaming
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.representation import JSON

_HTML = "text/html; charset=utf-8"
_LOGIN_PAGE = b"""<!DOCTYPE html>
<html><head><title>Sign in</title></head>
<body><form method="post" action="/login"><input name="user"><input name="password"></form></body></html>
"""
_HALF_EVENT = b'{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0","reso'
_HALVES = frozenset({FaultAnswer.TRUNCATED, FaultAnswer.BROKEN_OFF})


def foreign_answer(fault: ApiFault) -> Answer | None:
    """The answer that somebody else gives in the server's place; None for other faults."""
    match fault.answer:
        case FaultAnswer.HTML:
            return Answer(HTTPStatus.OK, _LOGIN_PAGE, _HTML)
        case FaultAnswer.EMPTY:
            return Answer(HTTPStatus.OK, b"")
        case FaultAnswer.WRONG_KIND:
            return Answer(HTTPStatus.OK, fault.body.encode() + b"\n", JSON)
        case _:
            return None


def is_half(fault: ApiFault) -> bool:
    """Whether the fault cuts the right answer in two."""
    return fault.answer in _HALVES


def half_answer(fault: ApiFault, answer: Answer | Streaming) -> Answer:
    """The first half of an answer; of a watch, half of one event."""
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
