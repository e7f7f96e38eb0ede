"""A host that is asked to reboot under pods, because somebody undid the drain between two asks.

A node is marked as rebooting, and its host cannot be reached; meanwhile somebody uncordons it, or
pods come. The last look (cordoned, empty of what had to go, our marks, the lock) precedes every
ask, in this process and in any other: where it does not hold the node is drained again, or given
back, and never rebooted as it stands.
"""

import time
from pathlib import Path

import pytest

from rollout.lab.api.resources import NODES
from rollout.lab.api.store import Change
from rollout.lab.lab import Lab
from rollout.lab.objects import is_ready
from tests.apply.conftest import Rollout, command, lose_hosts
from tests.conftest import StartLab
from tests.ended import Ended
from tests.security.hands import (
    at_phase,
    close_ssh,
    cordon,
    cordon_for_good,
    later,
    open_ssh,
    refill,
)
from tests.state import PREFIX, is_cordoned, marks_of, unlock

APPLY = (
    *("apply", "--yes", "-o", "json", "--node", "worker-2", "--control-plane", "exclude"),
    *("--drain-timeout", "20s", "--reboot-timeout", "8s"),
)


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab("default", nodes=5)


def unreachable_when_asked(lab: Lab, *, uncordoned: bool, back_after: float | None) -> None:
    """The host is away when it is to be asked; then somebody fills its node, and may uncordon it
    before.
    """

    def meddle(node: str) -> None:
        if uncordoned:
            cordon(lab, node, cordoned=False)
        refill(lab, node)
        if back_after is not None:
            later(back_after, lambda: open_ssh(lab, node))

    at_phase(lab, "drained", lambda node: close_ssh(lab, node))
    at_phase(lab, "rebooting", meddle)


def killed_at_its_ask(lab: Lab, home: Path, *, uncordoned: bool) -> None:
    """kill -9 once the node is marked as rebooting and its host was found away; then SSH comes
    back.
    """
    unreachable_when_asked(lab, uncordoned=uncordoned, back_after=None)
    process = command(lab, home, *APPLY)
    assert process.stdout is not None
    for line in process.stdout:
        if "cannot be asked to reboot yet" in line:
            break
    process.kill()
    process.communicate()
    assert marks_of(lab, "worker-2")["phase"] == "rebooting"
    lab.call(lambda: open_ssh(lab, "worker-2"))


def asked_again(
    lab: Lab, rollout: Rollout, home: Path, *, uncordoned: bool, resumed: bool
) -> Ended:
    """By the process that asked first, or by another one."""
    if resumed:
        killed_at_its_ask(lab, home, uncordoned=uncordoned)
        return rollout(lab, "resume", "--yes", "-o", "json", *unlock(lab))
    unreachable_when_asked(lab, uncordoned=uncordoned, back_after=1.0)
    return rollout(lab, *APPLY)


@pytest.mark.parametrize("resumed", [False, True])
def test_a_node_that_was_uncordoned_between_two_asks_is_given_back(
    lab: Lab, rollout: Rollout, tmp_path: Path, *, resumed: bool
) -> None:
    ended = asked_again(lab, rollout, tmp_path, uncordoned=True, resumed=resumed)
    assert (ended.code, ended.outcomes) == (4, {"worker-2": "drain-failed"}), ended.stderr
    told = (
        " ".join(detail for _phase, detail in ended.steps("worker-2"))
        + ended.failures["worker-2"]["message"]
    )
    assert (
        "only watched"
        if resumed
        else "uncordoned outside this rollout before its reboot was requested"
    ) in told
    score = lab.scoreboard()
    assert score.reboots["worker-2"] == 0
    assert score.killed == ()
    assert score.cordons_left == ()
    assert set(marks_of(lab, "worker-2")) == {"last-result"}


@pytest.mark.parametrize("resumed", [False, True])
def test_a_node_that_was_refilled_between_two_asks_is_drained_again(
    lab: Lab, rollout: Rollout, tmp_path: Path, *, resumed: bool
) -> None:
    ended = asked_again(lab, rollout, tmp_path, uncordoned=False, resumed=resumed)
    assert (ended.code, ended.outcomes) == (0, {"worker-2": "succeeded"}), ended.stderr
    details = [detail for phase, detail in ended.steps("worker-2") if phase == "draining"]
    assert resumed or any("draining again: default/late-" in detail for detail in details)
    score = lab.scoreboard()
    assert score.reboots["worker-2"] == 1
    assert score.killed == ()
    assert score.rebooted_undrained == ()


def test_a_node_that_is_refilled_before_it_is_asked_at_all_is_not_even_marked_as_rebooting(
    lab: Lab, rollout: Rollout
) -> None:
    """The whole look comes before the mark: whoever reads it may take it that the ask is next."""
    phases: list[str] = []

    def seen(change: Change) -> None:
        if change.resource is NODES and change.obj["metadata"]["name"] == "worker-2":
            phase = change.obj["metadata"].get("annotations", {}).get(f"{PREFIX}phase", "")
            phases.extend([phase] if phase and phases[-1:] != [phase] else [])

    lab.call(lambda: lab.store.subscribe(seen))
    at_phase(lab, "drained", lambda node: refill(lab, node))
    ended = rollout(lab, *APPLY)
    assert (ended.code, ended.outcomes) == (0, {"worker-2": "succeeded"}), ended.stderr
    assert phases[2:6] == ["draining", "drained", "draining", "drained"], phases
    assert phases.count("rebooting") == 1


def test_a_node_that_is_uncordoned_before_its_drain_is_not_drained(
    lab: Lab, rollout: Rollout
) -> None:
    at_phase(lab, "cordoned", lambda node: cordon(lab, node, cordoned=False))
    ended = rollout(lab, *APPLY)
    assert (ended.code, ended.outcomes) == (4, {"worker-2": "drain-failed"}), ended.stderr
    assert (
        "was uncordoned outside this rollout before it was drained"
        in ended.failures["worker-2"]["message"]
    )
    assert lab.scoreboard().evictions == 0
    assert lab.scoreboard().cordons_left == ()


# Whose cordon it is: ours is undone however often a node is taken again, anybody else's never.


ONE = ("--node", "worker-1", "--yes", "-o", "json", "--reboot-timeout", "4s")


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
    assert is_cordoned(lab, "worker-1")
    assert marks_of(lab, "worker-1")["cordoned-by-us"] == "true"
    mend(lab, "worker-1")


def test_a_cordon_that_a_failed_run_left_is_undone_by_the_next_one(
    lab: Lab, rollout: Rollout
) -> None:
    fail(lab, rollout)
    ended = rollout(lab, "apply", "--allow", "cordoned", "--allow", "idle", *ONE)
    assert (ended.code, ended.outcomes) == (0, {"worker-1": "succeeded"}), ended.stderr
    assert not is_cordoned(lab, "worker-1")
    assert set(marks_of(lab, "worker-1")) == {"last-result"}


def test_a_failed_node_that_somebody_uncordoned_is_tried_again_and_given_back(
    lab: Lab, rollout: Rollout
) -> None:
    fail(lab, rollout)
    lab.call(lambda: cordon(lab, "worker-1", cordoned=False))
    ended = rollout(lab, "resume", "--yes", "-o", "json", "--retry-failed")
    assert (ended.code, ended.outcomes) == (0, {"worker-1": "succeeded"}), ended.stderr
    assert not is_cordoned(lab, "worker-1")
    assert set(marks_of(lab, "worker-1")) == {"last-result"}


def test_a_node_that_somebody_cordons_before_its_turn_is_skipped(
    lab: Lab, rollout: Rollout
) -> None:
    at_phase(lab, "draining", lambda _node: cordon_for_good(lab, "worker-2"), node="worker-1")
    ended = rollout(
        lab,
        *("apply", "--yes", "-o", "json"),
        *(flag for n in (1, 2, 3) for flag in ("--node", f"worker-{n}")),
    )
    assert ended.outcomes == {"worker-1": "succeeded", "worker-3": "succeeded"}, ended.stderr
    assert ended.summary["skipped"] == ["worker-2"]
    assert ended.summary["not_started"] == []
    assert is_cordoned(lab, "worker-2")
    assert marks_of(lab, "worker-2") == {}
