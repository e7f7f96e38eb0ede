"""What a client of FleetLock sends, read from bytes to an ask or a refusal; and what it is answered.

By the protocol 200 is a yes, and anything else is a no that the client tries again after a while.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from math import inf

import msgspec

from rollout.model.fleetlock import is_group
from rollout.model.text import excerpt

HEADER = "fleet-lock-protocol"
_ID = re.compile(r"[0-9a-zA-Z-]{1,128}")


class Kind(StrEnum):
    """Why; the words are the `kind` of the answer's body."""

    GRANTED = "granted"
    RELEASED = "released"
    NOT_HELD = "not_held"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    MISSING_HEADER = "missing_header"
    DECODE_ERROR = "decode_error"
    INVALID_CLIENT_IDENTITY = "invalid_client_identity"
    BODY_TOO_LARGE = "body_too_large"
    BODY_TIMEOUT = "body_timeout"
    UNKNOWN_GROUP = "unknown_group"
    GROUP_MISMATCH = "group_mismatch"
    UNKNOWN_ID = "unknown_id"
    DOUBLED_ID = "doubled_id"
    SEMAPHORE_FULL = "failed_lock_semaphore_full"
    WAITING_FOR_DRAIN = "waiting_for_drain"
    WAITING_FOR_PROOF = "waiting_for_proof"
    WAITING_FOR_SETTLING = "waiting_for_settling"
    NODE_FAILED = "node_failed"
    LOCKED_BY_ROLLOUT = "locked_by_rollout"
    OUTSIDE_WINDOW = "outside_window"
    PAUSED = "paused"
    MAX_UNAVAILABLE = "max_unavailable"
    FAILED_RECENTLY = "failed_recently"
    NOT_NOW = "not_now"
    VERSION_HELD = "version_held"
    DRAIN_BLOCKED = "drain_blocked"
    NODE_EXCLUDED = "node_excluded"
    RIVAL = "rival"
    HELD_BY_GATE = "held_by_gate"
    LOCK_LOST = "lock_lost"
    API_UNAVAILABLE = "api_unavailable"
    API_ERROR = "api_error"
    SERVER_BUSY = "server_busy"
    SERVER_STOPPING = "server_stopping"
    INTERNAL_ERROR = "internal_error"


_YES, _LOCKED, _UNAVAILABLE = 200, 423, 503
_STATUSES = {
    Kind.GRANTED: _YES,
    Kind.RELEASED: _YES,
    Kind.NOT_HELD: _YES,
    Kind.NOT_FOUND: 404,
    Kind.METHOD_NOT_ALLOWED: 405,
    Kind.MISSING_HEADER: 400,
    Kind.DECODE_ERROR: 400,
    Kind.INVALID_CLIENT_IDENTITY: 400,
    Kind.BODY_TOO_LARGE: 413,
    Kind.BODY_TIMEOUT: 408,
    Kind.UNKNOWN_GROUP: 400,
    Kind.GROUP_MISMATCH: 403,
    Kind.UNKNOWN_ID: 403,
    Kind.DOUBLED_ID: 403,
    Kind.LOCK_LOST: _UNAVAILABLE,
    Kind.API_UNAVAILABLE: _UNAVAILABLE,
    Kind.API_ERROR: 500,
    Kind.SERVER_BUSY: _UNAVAILABLE,
    Kind.SERVER_STOPPING: _UNAVAILABLE,
    Kind.INTERNAL_ERROR: 500,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: `value` says in a sentence what `kind` says in a word.

    `until` is how long it holds, in seconds of the monotonic clock: what was looked at for it is not known later.
    """

    kind: Kind
    value: str
    until: float = inf

    @property
    def status(self) -> int:
        """The HTTP status."""
        return _STATUSES.get(self.kind, _LOCKED)

    def at(self, moment: float) -> "Answer":
        """Return what may be said at that moment of the monotonic clock: a yes that comes too late is a no."""
        if moment <= self.until:
            return self
        return Answer(Kind.LOCK_LOST, f"the answer ({self.kind}) comes {moment - self.until:.1f} s too late to hold")


class Denied(Exception):  # noqa: N818 - a no is an answer, not an error
    """The answer is no."""

    def __init__(self, kind: Kind, value: str) -> None:
        super().__init__(value)
        self.answer = Answer(kind, value)


@dataclass(frozen=True, slots=True)
class Ask:
    """Who asks: the id that a host makes of its machine id, in lower case without dashes; and its group."""

    id: str
    group: str


class _Parameters(msgspec.Struct):
    id: str
    group: str


class _Body(msgspec.Struct):
    client_params: _Parameters


def check_request(method: str, header: str | None) -> None:
    """`Denied` for a request that is none of the protocol's."""
    if method != "POST":
        raise Denied(Kind.METHOD_NOT_ALLOWED, f"{method}: the protocol knows POST only")
    if (header or "").strip().lower() != "true":
        raise Denied(Kind.MISSING_HEADER, f"the header {HEADER}: true is missing")


def read_ask(body: bytes) -> Ask:
    """Who asks; `Denied` for a body that does not say it."""
    try:
        parameters = msgspec.json.decode(body, type=_Body).client_params
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Denied(Kind.DECODE_ERROR, f"the body is not the protocol's JSON: {excerpt(str(error))}") from error
    if not is_group(parameters.group):
        raise Denied(Kind.INVALID_CLIENT_IDENTITY, "the group is empty, or none: letters, digits, dots and dashes")
    if not _ID.fullmatch(parameters.id):
        raise Denied(Kind.INVALID_CLIENT_IDENTITY, "the id is empty, or none")
    return Ask(parameters.id.replace("-", "").lower(), parameters.group)
