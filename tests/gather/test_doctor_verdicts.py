"""The doctor's verdicts on the lock, from values alone; those on live clusters stand in tests/cli/test_doctor.py."""

import pytest

from rollout.gather.doctor.checks import Verdict
from rollout.gather.doctor.cluster import LockState, lock_check, unseen_lock_check

LEFT = ("the rollout 3f9a was interrupted", "`rollout resume` goes on with it")


@pytest.mark.parametrize(
    ("state", "verdict", "message"),
    [
        (LockState("", is_alive=False), Verdict.PASS, "the lock is free"),
        (LockState("ann", is_alive=True), Verdict.WARN, "held by ann: a rollout is under way"),
        (LockState("ann", is_alive=False), Verdict.WARN, "held by ann, which does not renew it"),
        (LockState("ann", True, *LEFT, blocks=True), Verdict.WARN, "held by ann: a rollout is under way"),
        (LockState("ann", False, *LEFT, blocks=True), Verdict.FAIL, "the rollout 3f9a was interrupted"),
        (LockState("", False, *LEFT), Verdict.WARN, "the rollout 3f9a was interrupted"),
    ],
)
def test_a_living_holder_goes_before_what_is_unfinished(state: LockState, verdict: Verdict, message: str) -> None:
    check = lock_check("kube-system/node-rollout", state)
    assert check.verdict is verdict
    assert check.message.startswith(message)
    assert bool(check.fix) is (verdict is not Verdict.PASS)


def test_a_lock_that_is_not_shown_is_no_failure() -> None:
    check = unseen_lock_check("kube-system/node-rollout", "forbidden", "")
    assert (check.verdict, check.message) == (Verdict.WARN, "the lock cannot be seen: forbidden")
    assert check.fix == "Try: kubectl -n kube-system get lease node-rollout"
