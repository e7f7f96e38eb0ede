"""Whether a rollout could take the lock now, and whose it is where it could not. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from rollout.errors import ApiError
from rollout.gather.cluster.documents import hint_in
from rollout.gather.doctor.checks import Check, CheckName, failed, passed, warned


@dataclass(frozen=True, slots=True)
class LockState:
    """The Lease's holder, empty for nobody, and whether it renews it; and the rollout that stands there unfinished.

    `unfinished` says which in half a sentence, empty where there is none, and `ways_out` what can be done about it;
    `blocks` is whether it keeps another from beginning.
    """

    holder: str
    is_alive: bool
    unfinished: str = ""
    ways_out: str = ""
    blocks: bool = False


def lock_check(subject: str, state: LockState) -> Check:
    """The verdict on the lock; `subject` is the Lease with its namespace."""
    if state.is_alive:
        fix = "Wait until it has ended: rollout status --run shows it."
        return warned(CheckName.LOCK, subject, f"held by {state.holder}: a rollout is under way", fix)
    if state.unfinished:
        verdict = failed if state.blocks else warned
        return verdict(CheckName.LOCK, subject, state.unfinished, f"{state.ways_out}.")
    if state.holder:
        message = f"held by {state.holder}, which does not renew it: it is taken over once it expires"
        return warned(CheckName.LOCK, subject, message, "Make sure that no rollout of this holder is still running.")
    return passed(CheckName.LOCK, subject, "the lock is free, and no rollout is unfinished")


def unseen_lock_check(subject: str, message: str, hint: str) -> Check:
    """The verdict on a lock that the API server does not show."""
    namespace, _, name = subject.partition("/")
    fix = hint or f"Try: kubectl -n {namespace} get lease {name}"
    return warned(CheckName.LOCK, subject, f"the lock cannot be seen: {message}", fix)


def uncreatable_lock_checks(subject: str, why: ApiError | None) -> Iterator[Check]:
    """The verdict on a Lease that the API server would not store, by its answer `why`; none where that is None."""
    if why:
        namespace, _, _ = subject.partition("/")
        fix = hint_in(namespace, why) or f"Allow it. Quotas of the namespace: kubectl -n {namespace} get resourcequota"
        message = f"cannot be created, so no rollout can begin: {why.message}"
        yield failed(CheckName.LOCK, f"Lease {subject}", message, fix)
