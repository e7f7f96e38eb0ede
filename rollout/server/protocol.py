"""FleetLock's requests and answers. Clients retry unless the status is 200."""

import re
from enum import StrEnum
from math import inf
from typing import Self

import msgspec
from msgspec import Struct

from rollout.model.fleetlock import is_group
from rollout.model.text import excerpt

HEADER = "fleet-lock-protocol"
_ID = re.compile(r"[0-9a-zA-Z-]{1,128}")

_OK = 200
_LOCKED = 423
_UNAVAILABLE = 503


class AnswerKind(StrEnum):
    """The `kind` in an answer's body, with its HTTP status."""

    _value_: str
    status: int

    def __new__(cls, word: str, status: int = _LOCKED) -> Self:
        kind = str.__new__(cls, word)
        kind._value_ = word
        kind.status = status
        return kind

    GRANTED = "granted", _OK
    # The slot is released later.
    RELEASED = "released", _OK
    NOT_HELD = "not_held", _OK
    NOT_FOUND = "not_found", 404
    METHOD_NOT_ALLOWED = "method_not_allowed", 405
    MISSING_HEADER = "missing_header", 400
    DECODE_ERROR = "decode_error", 400
    INVALID_CLIENT_IDENTITY = "invalid_client_identity", 400
    BODY_TOO_LARGE = "body_too_large", 413
    BODY_TIMEOUT = "body_timeout", 408
    UNKNOWN_GROUP = "unknown_group", 400
    GROUP_MISMATCH = "group_mismatch", 403
    UNKNOWN_ID = "unknown_id", 403
    DOUBLED_ID = "doubled_id", 403
    SEMAPHORE_FULL = "failed_lock_semaphore_full"
    # Clients only look at the status, so rare denials share a kind: here, a slot whose node may be
    # returned at any time.
    WAITING_FOR_DRAIN = "waiting_for_drain"
    # Also a slot under another ID, group or Node: this host cannot prove its reboot.
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
    LOCK_LOST = "lock_lost", _UNAVAILABLE
    API_UNAVAILABLE = "api_unavailable", _UNAVAILABLE
    API_ERROR = "api_error", 500
    SERVER_BUSY = "server_busy", _UNAVAILABLE
    SERVER_STOPPING = "server_stopping", _UNAVAILABLE
    INTERNAL_ERROR = "internal_error", 500


class FleetLockAnswer(Struct, frozen=True):
    kind: AnswerKind
    value: str
    # Monotonic time until which it may be sent.
    until: float = inf

    def valid_at(self, moment: float) -> "FleetLockAnswer":
        if moment <= self.until:
            return self
        message = f"the response ({self.kind}) was ready {moment - self.until:.1f} s too late"
        return FleetLockAnswer(AnswerKind.LOCK_LOST, message)


INTERNAL_ERROR = FleetLockAnswer(AnswerKind.INTERNAL_ERROR, "internal error: see the server's log")


class Denied(Exception):  # noqa: N818 - a no is an answer, not an error
    def __init__(self, kind: AnswerKind, value: str) -> None:
        super().__init__(value)
        self.answer = FleetLockAnswer(kind, value)


class HostRequest(Struct, frozen=True):
    # In lower case, without dashes.
    id: str
    group: str


class _RequestBody(msgspec.Struct):
    client_params: HostRequest


def check_request(method: str, header: str | None) -> None:
    if method != "POST":
        raise Denied(AnswerKind.METHOD_NOT_ALLOWED, f"{method}: the protocol supports only POST")
    if (header or "").strip().lower() != "true":
        raise Denied(AnswerKind.MISSING_HEADER, f"the header {HEADER}: true is missing")


def parse_request(body: bytes) -> HostRequest:
    try:
        parameters = msgspec.json.decode(body, type=_RequestBody).client_params
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        message = f"the body is not the protocol's JSON: {excerpt(str(error))}"
        raise Denied(AnswerKind.DECODE_ERROR, message) from error
    if not is_group(parameters.group):
        raise Denied(
            AnswerKind.INVALID_CLIENT_IDENTITY,
            "the group is empty or invalid: use letters, digits, dots and dashes",
        )
    if not _ID.fullmatch(parameters.id):
        raise Denied(AnswerKind.INVALID_CLIENT_IDENTITY, "the ID is empty or invalid")
    return HostRequest(parameters.id.replace("-", "").lower(), parameters.group)
