"""What a client of FleetLock is answered: a status, and a kind of which there are only these.

By the protocol 200 is a yes, and anything else is a no that the client tries again after a while.
"""

from dataclasses import dataclass
from enum import StrEnum


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
    MAX_FAILURES = "max_failures"
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

MEANINGS = {
    Kind.GRANTED: "the node is cordoned and drained: reboot",
    Kind.RELEASED: "the node is proven to be back, and is in service again",
    Kind.NOT_HELD: "the host holds no slot: there was nothing to release",
    Kind.NOT_FOUND: "there is no such path",
    Kind.METHOD_NOT_ALLOWED: "the protocol knows POST only",
    Kind.MISSING_HEADER: "the header `fleet-lock-protocol: true` is missing",
    Kind.DECODE_ERROR: "the body is not the protocol's JSON",
    Kind.INVALID_CLIENT_IDENTITY: "the id or the group is empty, or cannot be one",
    Kind.BODY_TOO_LARGE: "the body is larger than 4 KiB",
    Kind.BODY_TIMEOUT: "the body did not arrive within 10 s",
    Kind.UNKNOWN_GROUP: "no such group is configured",
    Kind.GROUP_MISMATCH: "the node is not one of this group: `--group-selector`",
    Kind.UNKNOWN_ID: "no node has the machine id that this id is made of",
    Kind.DOUBLED_ID: "several nodes have that machine id",
    Kind.SEMAPHORE_FULL: "all slots of the group are held",
    Kind.WAITING_FOR_DRAIN: "the host holds a slot, and its node is not drained yet",
    Kind.WAITING_FOR_PROOF: "the node has not proven its reboot: new boot id, Ready",
    Kind.WAITING_FOR_SETTLING: "the node is back, and the cluster has not settled from its reboot",
    Kind.NODE_FAILED: "the node's last reboot ended badly, and it stays cordoned",
    Kind.LOCKED_BY_ROLLOUT: "another rollout is running or unfinished: `rollout apply`, `rollout operate`",
    Kind.OUTSIDE_WINDOW: "no maintenance window is open: `--window`",
    Kind.PAUSED: "the node, or every node, is paused: `rollout pause`",
    Kind.MAX_UNAVAILABLE: "too many nodes are unavailable already: `--max-unavailable`",
    Kind.MAX_FAILURES: "too many nodes have failed lately: `--max-failures`",
    Kind.FAILED_RECENTLY: "the node failed, and rests before the next attempt",
    Kind.NOT_NOW: "it has to wait for others: `--control-plane`, `--spread-by`",
    Kind.VERSION_HELD: "a version that failed on other nodes waits there, or may: `rollout release VERSION`",
    Kind.DRAIN_BLOCKED: "the node's drain could never end, and was not begun: the blocker that `rollout plan` shows",
    Kind.NODE_EXCLUDED: "the node may not be rebooted: not Ready, cordoned by an operator, excluded, marks of others",
    Kind.RIVAL: "another reboot coordinator is at work",
    Kind.HELD_BY_GATE: "a gate holds the node: alerts, blocking pods, `--window-fit`",
    Kind.LOCK_LOST: "no server holds the Lease, or none was seen to renew it yet",
    Kind.API_UNAVAILABLE: "the API server is away",
    Kind.API_ERROR: "the API server refuses, or the slots on it are not understood",
    Kind.SERVER_BUSY: "too many requests at once",
    Kind.SERVER_STOPPING: "this server is about to end",
    Kind.INTERNAL_ERROR: "a defect of this program",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: `value` says in a sentence what `kind` says in a word."""

    kind: Kind
    value: str

    @property
    def status(self) -> int:
        """The HTTP status."""
        return _STATUSES.get(self.kind, _LOCKED)

    @property
    def is_yes(self) -> bool:
        """Whether the client may go on."""
        return self.status == _YES


class Denied(Exception):  # noqa: N818 - a no is an answer, not an error
    """The answer is no."""

    def __init__(self, kind: Kind, value: str) -> None:
        super().__init__(value)
        self.answer = Answer(kind, value)
