"""Whose cordon it is: ours is undone however often a node is taken again, anybody else's never.

A failed run leaves its node cordoned, and marked as cordoned by us; whoever takes the node again takes the cordon with
it. A node that somebody cordons before its turn is theirs: it is skipped, which is no failure.
"""

import time

import pytest

from rollout.lab.api.resources import NODES
from rollout.lab.lab import Lab
from rollout.lab.world.objects import is_ready
from tests.apply.conftest import Rollout, lose_hosts
from tests.conftest import StartLab
from tests.security.hands import at_phase, cordon, marks, open_ssh

ONE = ("--node", "worker-1", "--yes", "-o", "json", "--reboot-timeout", "8s")


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab("default", nodes=5, speed=30)


def is_cordoned(lab: Lab, node: str) -> bool:
    found = lab.call(lambda: lab.store.get(NODES, node))
    assert found is not None
    return bool(found["spec"].get("unschedulable"))


def mend(lab: Lab, node: str) -> None:
    """Somebody switches the host on again; return once its kubelet reports Ready."""

    def switch_on() -> None:
        open_ssh(lab, node)
        lab.machines[node].power_on()

    lab.call(switch_on)
    end = time.monotonic() + 60
    while not is_ready(lab.call(lambda: lab.store.get(NODES, node) or {})):
        assert time.monotonic() < end, "it does not come back"
        time.sleep(0.05)


def fail(lab: Lab, rollout: Rollout) -> None:
    """A run whose host does not come back, and which leaves its node cordoned."""
    lab.call(lambda: lose_hosts(lab))
    ended = rollout(lab, "apply", *ONE)
    assert (ended.code, ended.outcomes) == (4, {"worker-1": "not-back"}), ended.stderr
    assert (is_cordoned(lab, "worker-1"), marks(lab, "worker-1")["cordoned-by-us"]) == (True, "true")
    mend(lab, "worker-1")


def test_a_cordon_that_a_failed_run_left_is_undone_by_the_next_one(lab: Lab, rollout: Rollout) -> None:
    fail(lab, rollout)
    ended = rollout(lab, "apply", "--allow", "cordoned", "--allow", "idle", *ONE)
    assert (ended.code, ended.outcomes) == (0, {"worker-1": "succeeded"}), ended.stderr
    assert not is_cordoned(lab, "worker-1")
    assert set(marks(lab, "worker-1")) == {"last-result"}


def test_a_cordon_of_someone_else_stays_theirs(lab: Lab, rollout: Rollout) -> None:
    lab.call(lambda: cordon(lab, "worker-1", cordoned=True))
    ended = rollout(lab, "apply", "--allow", "cordoned", *ONE)
    assert (ended.code, ended.outcomes) == (0, {"worker-1": "succeeded"}), ended.stderr
    assert (is_cordoned(lab, "worker-1"), set(marks(lab, "worker-1"))) == (True, {"last-result"})


def test_a_failed_node_that_somebody_uncordoned_is_tried_again_and_given_back(lab: Lab, rollout: Rollout) -> None:
    fail(lab, rollout)
    lab.call(lambda: cordon(lab, "worker-1", cordoned=False))
    ended = rollout(lab, "resume", "--yes", "-o", "json", "--retry-failed")
    assert (ended.code, ended.outcomes) == (0, {"worker-1": "succeeded"}), ended.stderr
    assert (is_cordoned(lab, "worker-1"), set(marks(lab, "worker-1"))) == (False, {"last-result"})


def test_a_node_that_somebody_cordons_before_its_turn_is_skipped(lab: Lab, rollout: Rollout) -> None:
    at_phase(lab, "draining", lambda _node: cordon(lab, "worker-2", cordoned=True), node="worker-1")
    ended = rollout(
        lab, "apply", "--yes", "-o", "json", *(flag for n in (1, 2, 3) for flag in ("--node", f"worker-{n}"))
    )
    assert ended.outcomes == {"worker-1": "succeeded", "worker-3": "succeeded"}, ended.stderr
    assert (ended.summary["skipped"], ended.summary["not_started"]) == (["worker-2"], [])
    assert (is_cordoned(lab, "worker-2"), marks(lab, "worker-2")) == (True, {})
