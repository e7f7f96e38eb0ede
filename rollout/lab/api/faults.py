import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from random import Random
from typing import Annotated, Final

import msgspec
from msgspec.structs import replace

from rollout.lab.api.endpoints import EndpointResponse, refused
from rollout.lab.api.reads import Watch
from rollout.lab.api.requests import Target
from rollout.lab.api.statuses import STALE, StatusError
from rollout.model.quantity import Number, Seconds


class FaultAnswer(StrEnum):
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
    HANG = "hang"  # no response for `delay` or until the fault ends; then the connection breaks
    SLOW = "slow"  # the right answer, late
    OUTAGE = "outage"  # no listener and no connections for the duration
    HTML = "html"  # 200 with a page, as from a proxy
    EMPTY = "empty"  # 200 without a body
    WRONG_KIND = "wrong-kind"  # 200 with `body`, JSON of another kind than requested
    TRUNCATED = "truncated"  # it is done; half of the answer comes, with that Content-Length
    BROKEN_OFF = "broken-off"  # the same with a larger Content-Length, and the connection breaks


class ApiFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A rule is in force from `after` for `duration`; empty fields match everything.

    Times are simulated seconds, except `retry_after`. The rule strikes matching requests from
    number `from_request` on (1 is the first), at most `requests`. `resource` may name a subresource
    (`pods/eviction`). `path` is how a URL of no resource begins (`/version`); its verb is `get`. An
    outage begins with the first request that is struck; afterwards the first `refused` get a 403.
    `done` tells for `html`, `empty` and `wrong-kind` whether the request is carried out.
    """

    answer: FaultAnswer
    verb: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    after: Seconds = 0.0
    duration: Seconds = math.inf
    from_request: int = 1
    requests: int | None = None
    probability: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    delay: Seconds = 0.0
    retry_after: Number = 1
    refused: int = 0
    done: bool = False
    body: str = '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}'

    def covers(self, target: Target) -> bool:
        return (
            self.verb in {"", target.verb}
            and self.resource in {"", target.plural}
            and self.namespace in {"", target.namespace}
            and self.name in {"", target.name}
            and target.path.startswith(self.path)
        )


class _ActiveFault:
    def __init__(self, rule: ApiFault, began: float) -> None:
        self.rule = rule
        self.starts = began + rule.after
        self.ends = self.starts + rule.duration
        self.struck = 0
        self._met = 0

    def count_and_strike(self, target: Target, now: float, random: Random) -> bool:
        # An outage lasts from the request that it strikes.
        has_ended = now >= self.ends and self.rule.answer is not FaultAnswer.OUTAGE
        if now < self.starts or has_ended or not self.rule.covers(target):
            return False
        self._met += 1
        if self._met < self.rule.from_request or self.struck == self.rule.requests:
            return False
        if random.random() >= self.rule.probability:
            return False
        self.struck += 1
        return True


class FaultPlan:
    """The first rule that strikes decides. `now`: simulated seconds."""

    def __init__(self, *, now: Callable[[], float]) -> None:
        self._now = now
        self._random = Random(0)
        self._active: list[_ActiveFault] = []

    def add(self, rule: ApiFault) -> None:
        """An outage happens once unless `requests` is set."""
        if rule.answer is FaultAnswer.OUTAGE and rule.requests is None:
            rule = msgspec.structs.replace(rule, requests=1)
        self._active.append(_ActiveFault(rule, self._now()))

    def clear(self) -> None:
        self._active.clear()

    def struck(self, rule: ApiFault) -> int:
        return sum(active.struck for active in self._active if active.rule is rule)

    def strike(self, target: Target) -> ApiFault | None:
        """Return the first rule that strikes; later ones do not count the request."""
        now = self._now()
        for active in self._active:
            if active.count_and_strike(target, now, self._random):
                return active.rule
        return None

    def remaining(self, rule: ApiFault) -> float:
        """In simulated seconds; 0 if the rule is not in force."""
        ends = next((active.ends for active in self._active if active.rule is rule), 0.0)
        return max(ends - self._now(), 0.0)


_DENIED: Final = 'admission webhook "evictions.lab" denied the request: the pod is being moved'
_HTML: Final = "text/html; charset=utf-8"
_LOGIN_PAGE: Final = b"""<!DOCTYPE html>
<html><head><title>Sign in</title></head>
<body><form method="post" action="/login"><input name="user"><input name="password"></form></body>
</html>
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
    if fault.answer in _REFUSALS:
        return refused(StatusError(*_REFUSALS[fault.answer]))
    match fault.answer:
        case FaultAnswer.TOO_MANY_REQUESTS:
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
    if fault.answer not in _HALVES:
        return answer
    if isinstance(answer, Watch):
        half = EndpointResponse(200, _HALF_EVENT)
    else:
        half = replace(answer, payload=answer.payload[: len(answer.payload) // 2])
    return replace(half, breaks_off=fault.answer is FaultAnswer.BROKEN_OFF)
