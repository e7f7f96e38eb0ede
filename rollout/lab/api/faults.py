"""Misbehaviour on demand: rules that make the API server answer badly, late, or not at all.

Rules are data, so that scenarios can carry them; all durations are simulated seconds. Some answers
have status 200 and are not what an API server gives: pages of proxies, bodies that end early. These
tell nothing of whether the request was carried out: a login page stands before the server, a
connection that is cut behind its deed.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from random import Random
from typing import Final

import msgspec

from rollout.lab.api.endpoints import EndpointResponse, refused
from rollout.lab.api.reads import Watch
from rollout.lab.api.requests import Target
from rollout.lab.api.statuses import STALE, StatusError


class FaultAnswer(StrEnum):
    """What happens to a request instead of its answer."""

    TOO_MANY_REQUESTS = "too-many-requests"  # 429 of flow control: plain text and Retry-After
    INTERNAL_ERROR = "internal-error"  # 500
    UNAVAILABLE = "unavailable"  # 503
    TIMEOUT = "timeout"  # 504
    BAD_REQUEST = "bad-request"  # 400
    CONFLICT = "conflict"  # 409
    INVALID = "invalid"  # 422
    DENIED = "denied"  # 429 of an admission webhook: a Status without Retry-After
    DENIED_ERROR = "denied-error"  # the same as a 500
    FORBIDDEN = "forbidden"  # 403 of an admission webhook: a Status without causes
    DROP = "drop"  # the connection breaks before anything is done
    LOSE_ANSWER = "lose-answer"  # it is done, and the connection breaks before the answer
    HANG = (  # nothing comes for `delay`, or without one until the fault ends; then the connection breaks
        "hang"
    )
    SLOW = "slow"  # the right answer, late
    OUTAGE = "outage"  # the whole server goes away for the duration: no listener, no connections
    HTML = "html"  # 200 with a page of HTML, as a proxy or a login page in between gives it
    EMPTY = "empty"  # 200 without a body
    WRONG_KIND = "wrong-kind"  # 200 with `body`, JSON of something else than what was asked for
    TRUNCATED = (  # it is done, and half of the answer comes, with the Content-Length of that half
        "truncated"
    )
    BROKEN_OFF = (  # the same with the Content-Length of the whole, and the connection breaks
        "broken-off"
    )


class ApiFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One rule; what is not named matches everything.

    It is in force from `after` for `duration` simulated seconds, for matching requests number
    `from_request` and up (1 is the first), at most `requests` of them, each with `probability`.
    `resource` may name a subresource (`pods/eviction`), and an address that is no resource's
    (`/version`) is met by `path`, which is how an address begins, and verb `get`. `delay` is for
    `slow` and `hang`, `retry_after` (real seconds, as clients read it) for `too-many-requests`. An
    outage begins with the first request that its rule meets; once it is over, the first `refused`
    requests find a server that does not know yet who may do what. `done` says of `html`, `empty`
    and `wrong-kind` whether the request is carried out all the same; `body` is for `wrong-kind`.
    """

    answer: FaultAnswer
    verb: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    after: float = 0.0
    duration: float = math.inf
    from_request: int = 1
    requests: int | None = None
    probability: float = 1.0
    delay: float = 0.0
    retry_after: int = 1
    refused: int = 0
    done: bool = False
    body: str = '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}'

    def covers(self, target: Target) -> bool:
        """Whether the rule is about such requests at all."""
        asked = (target.verb, target.plural, target.namespace, target.name)
        wanted = (self.verb, self.resource, self.namespace, self.name)
        named = all(want in {"", have} for want, have in zip(wanted, asked, strict=True))
        return named and target.path.startswith(self.path)


class _ActiveFault:
    """A rule and how often it met a request."""

    def __init__(self, rule: ApiFault, began: float) -> None:
        self.rule = rule
        self.starts = began + rule.after
        self.ends = self.starts + rule.duration
        self.struck = 0
        self._met = 0

    def strikes(self, target: Target, now: float, random: Random) -> bool:
        # An outage lasts from the request that it meets; its duration is no window for meeting one.
        in_force = now >= self.starts and (
            now < self.ends or self.rule.answer is FaultAnswer.OUTAGE
        )
        if not in_force or not self.rule.covers(target):
            return False
        self._met += 1
        if self._met < self.rule.from_request or self.struck == self.rule.requests:
            return False
        if random.random() >= self.rule.probability:
            return False
        self.struck += 1
        return True


class FaultPlan:
    """The rules in force; the first that strikes decides. `now` gives simulated seconds."""

    def __init__(self, *, now: Callable[[], float]) -> None:
        self._now = now
        self._random = Random(0)
        self._active: list[_ActiveFault] = []

    def add(self, rule: ApiFault) -> None:
        """Put a rule in force; its times count from now. An outage without further word happens once."""
        if rule.answer is FaultAnswer.OUTAGE and rule.requests is None:
            rule = msgspec.structs.replace(rule, requests=1)
        self._active.append(_ActiveFault(rule, self._now()))

    def clear(self) -> None:
        """Behave again."""
        self._active.clear()

    def struck(self, rule: ApiFault) -> int:
        """How many requests have met a rule so far."""
        return sum(active.struck for active in self._active if active.rule is rule)

    def strike(self, target: Target) -> ApiFault | None:
        """Return the fault that this request meets, if any."""
        now = self._now()
        return next(
            (active.rule for active in self._active if active.strikes(target, now, self._random)),
            None,
        )

    def remaining(self, rule: ApiFault) -> float:
        """Return simulated seconds until a rule ends; 0 where it is no longer in force."""
        ends = next((active.ends for active in self._active if active.rule is rule), 0.0)
        return max(ends - self._now(), 0.0)


_DENIED: Final = 'admission webhook "evictions.lab" denied the request: the pod is being moved'
_HTML: Final = "text/html; charset=utf-8"
_LOGIN_PAGE: Final = b"""<!DOCTYPE html>
<html><head><title>Sign in</title></head>
<body><form method="post" action="/login"><input name="user"><input name="password"></form></body></html>
"""
_HALF_EVENT: Final = (
    b'{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0","reso'
)
_HALVES: Final = frozenset({FaultAnswer.TRUNCATED, FaultAnswer.BROKEN_OFF})
_REFUSALS: Final[Mapping[FaultAnswer, tuple[str, str]]] = {
    FaultAnswer.INTERNAL_ERROR: (
        "InternalError",
        "Internal error occurred: etcdserver: request timed out",
    ),
    FaultAnswer.UNAVAILABLE: (
        "ServiceUnavailable",
        "the server is currently unable to handle the request",
    ),
    FaultAnswer.TIMEOUT: (
        "Timeout",
        "Timeout: request did not complete within the allotted timeout",
    ),
    FaultAnswer.BAD_REQUEST: ("BadRequest", "the request is not understood"),
    FaultAnswer.CONFLICT: ("Conflict", STALE),
    FaultAnswer.INVALID: ("Invalid", "the object is invalid: an admission webhook says so"),
    FaultAnswer.FORBIDDEN: (
        "Forbidden",
        'admission webhook "policy.lab" denied the request: it is frozen',
    ),
    FaultAnswer.DENIED: ("TooManyRequests", _DENIED),
    FaultAnswer.DENIED_ERROR: ("InternalError", _DENIED),
}


def stand_in(fault: ApiFault) -> EndpointResponse | None:
    """Return the answer that a fault gives in the server's place; None for faults that are no answer."""
    if fault.answer in _REFUSALS:
        return refused(StatusError(*_REFUSALS[fault.answer]))
    match fault.answer:
        case FaultAnswer.TOO_MANY_REQUESTS:
            # Flow control refuses before the API proper is reached: no Status, only a line of text.
            headers = {"Retry-After": str(fault.retry_after), "X-Content-Type-Options": "nosniff"}
            text = b"Too many requests, please try again later.\n"
            return EndpointResponse(429, text, "text/plain; charset=utf-8", headers)
        case FaultAnswer.HTML:
            return EndpointResponse(200, _LOGIN_PAGE, _HTML)
        case FaultAnswer.EMPTY:
            return EndpointResponse(200, b"")
        case FaultAnswer.WRONG_KIND:
            return EndpointResponse(200, fault.body.encode() + b"\n")
        case _:
            return None


def cut_answer(fault: ApiFault, answer: EndpointResponse | Watch) -> EndpointResponse | Watch:
    """Return what the fault leaves of the right answer: all, or its first half; of a watch, half of one event."""
    if fault.answer not in _HALVES:
        return answer
    if isinstance(answer, Watch):
        half = EndpointResponse(200, _HALF_EVENT)
    else:
        half = replace(answer, payload=answer.payload[: len(answer.payload) // 2])
    return replace(half, breaks_off=fault.answer is FaultAnswer.BROKEN_OFF)
