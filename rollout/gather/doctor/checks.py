"""Preconditions of a rollout, one verdict each: what was looked at, how it stands, and what would mend it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial


class Verdict(StrEnum):
    """How a precondition stands; fixed words."""

    PASS = "pass"  # noqa: S105 - a word of the report, no secret
    WARN = "warn"
    FAIL = "fail"


class CheckName(StrEnum):
    """What is looked at; fixed words, in the order in which they are reported."""

    KUBECONFIG = "kubeconfig"
    RIGHT = "right"
    LOCK = "lock"
    MEMORY = "memory"
    PAUSE = "pause"
    NODES = "nodes"
    POOL = "pool"
    NODE = "node"
    SSH = "ssh"
    HOST_KEY = "host-key"
    USER = "user"
    IDENTITY = "identity"
    SUDO = "sudo"
    SHUTDOWN = "shutdown"
    UPDATE_ENGINE = "update-engine"
    UPDATE_STATUS = "update-status"
    DETECT = "detect"
    LOCKSMITHD = "locksmithd"
    ZINCATI = "zincati"
    CLOCK = "clock"
    RIVAL = "rival"
    DRAIN = "drain"
    NOTIFICATIONS = "notifications"


@dataclass(frozen=True, slots=True)
class Check:
    """One precondition of one thing. `subject` is a node, a right, an address; `fix` is empty where all is well."""

    check: CheckName
    subject: str
    verdict: Verdict = field(kw_only=True)
    message: str
    fix: str = ""


passed = partial(Check, verdict=Verdict.PASS)
# A rollout works, but not as it might be expected to.
warned = partial(Check, verdict=Verdict.WARN)
# A rollout would not begin, would leave this node out, or would fail on it.
failed = partial(Check, verdict=Verdict.FAIL)


def sort_checks(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Order checks by what they look at; among those of one kind the order stays."""
    return tuple(sorted(checks, key=lambda check: list(CheckName).index(check.check)))


def tally(checks: Sequence[Check]) -> Mapping[Verdict, int]:
    """How many there are of each verdict."""
    return {verdict: sum(check.verdict is verdict for check in checks) for verdict in Verdict}
