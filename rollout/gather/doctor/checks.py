from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from rollout.errors import RolloutError
from rollout.model.text import joined


class Verdict(StrEnum):
    PASS = "pass"  # noqa: S105 - a word of the report, no secret
    WARN = "warn"
    FAIL = "fail"


class CheckName(StrEnum):
    """The checks, in the order of the report."""

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
    ROLLBACK = "rollback"
    SHUTDOWN = "shutdown"
    UPDATE_ENGINE = "update-engine"
    UPDATE_CHECK = "update-check"
    UPDATE_STATUS = "update-status"
    DETECT = "detect"
    LOCKSMITHD = "locksmithd"
    ZINCATI = "zincati"
    CLOCK = "clock"
    RIVAL = "rival"
    DRAIN = "drain"
    NOTIFICATIONS = "notifications"


@dataclass(frozen=True, slots=True)
class Fix:
    """What to do: `text`, then `commands` to copy; maybe empty."""

    text: str = ""
    commands: tuple[str, ...] = ()

    @classmethod
    def with_commands(cls, text: str, *commands: str) -> "Fix":
        return cls(text, commands)

    def __str__(self) -> str:
        return joined(": ", self.text, "; ".join(self.commands))


NO_FIX = Fix()


@dataclass(frozen=True, slots=True)
class Check:
    check: CheckName
    subject: str
    verdict: Verdict = field(kw_only=True)
    message: str
    fix: Fix = NO_FIX


passed = partial(Check, verdict=Verdict.PASS)
# A rollout may behave unexpectedly.
warned = partial(Check, verdict=Verdict.WARN)
# A rollout would not start, leave the node out, or fail.
failed = partial(Check, verdict=Verdict.FAIL)


def error_check(check: CheckName, subject: str, error: RolloutError) -> Check:
    hint = Fix(error.hint) if error.hint else Fix.with_commands("Try", "kubectl get nodes -v 6")
    return failed(check, subject, error.message, hint)


def sort_checks(checks: Iterable[Check]) -> tuple[Check, ...]:
    return tuple(sorted(checks, key=lambda check: list(CheckName).index(check.check)))


def tally(checks: Sequence[Check]) -> Mapping[Verdict, int]:
    counts = Counter(check.verdict for check in checks)
    return {verdict: counts[verdict] for verdict in Verdict}
