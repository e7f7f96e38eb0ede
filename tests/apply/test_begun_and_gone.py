"""What an interrupted rollout has begun and somebody has deleted since: going on with it, and
undoing it.
"""

from pathlib import Path

import pytest

from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, Started, killed_at
from tests.apply.test_deleted_nodes import APPLY, gone
from tests.state import record, run_of, unlock

RESUME = ("resume", "--yes", "-o", "json")


def left_and_gone(lab: Lab, home: Path, phase: str) -> str:
    """A rollout's process dies with a node in this phase, and the node is taken away after it."""
    node = killed_at(lab, home, phase, *APPLY)
    lab.call(lambda: gone(lab, node))
    return node


@pytest.mark.parametrize("phase", ["draining", "rebooting"])
def test_resume_goes_on_without_a_begun_node_that_is_gone(
    started: Started, rollout: Rollout, tmp_path: Path, phase: str
) -> None:
    lab = started("default", 5)
    node = left_and_gone(lab, tmp_path, phase)
    ended = rollout(lab, *RESUME, *unlock(lab)).ends(0)
    assert ended.summary["failed"] == []
    assert ended.summary["not_started"] == []
    assert len(ended.summary["succeeded"]) == 3
    assert node not in ended.summary["succeeded"]
    assert lab.scoreboard().cordons_left == ()
    assert record(lab) is None


@pytest.mark.parametrize("phase", ["draining", "rebooting"])
def test_abort_has_nothing_to_give_back_of_a_node_that_is_gone(
    started: Started, rollout: Rollout, tmp_path: Path, phase: str
) -> None:
    lab = started("default", 5)
    left_and_gone(lab, tmp_path, phase)
    rollout(lab, "abort", "--yes", "--force-unlock", run_of(lab)).ends(0)
    score = lab.scoreboard()
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert record(lab) is None
