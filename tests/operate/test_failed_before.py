"""Nodes that failed in earlier runs and stay cordoned: they use up the limit of every run until they are given back."""

import json
from collections.abc import Callable

from rollout.gather.cluster.snapshot import node_path
from rollout.lab.lab import Lab
from rollout.model.marks import REBOOT_NEEDED
from tests.apply.conftest import Rollout
from tests.apply.test_gates import AFTER, api_of

Start = Callable[[str, int], Lab]
# A check that passes nowhere.
RULES = (
    *(
        "--set",
        "detect.sources=annotation",
        "--set",
        f"gates.after-reboot-annotations={AFTER}",
        "--set",
        "gates.hook-timeout=1s",
        "--max-failures",
        "1",
    ),
    *("-o", "json", "--settle-timeout", "3s", "--set", "waves.health-checks=1"),
)
OPERATE = ("operate", "--once", *RULES)
APPLY = ("apply", "--yes", *RULES)


def asking(lab: Lab) -> Lab:
    """All its nodes ask for a reboot."""
    for name in lab.machines:
        api_of(lab).patch(node_path(name), {"metadata": {"annotations": {REBOOT_NEEDED: "true"}}})
    return lab


def test_they_keep_every_further_run_from_beginning_and_are_named(started: Start, rollout: Rollout) -> None:
    lab = asking(started("default", 6))
    assert rollout(lab, *OPERATE).code == 4
    (failed,) = lab.scoreboard().cordons_left
    for again in (OPERATE, APPLY, OPERATE):
        ended = rollout(lab, *again)
        assert ended.code == 6, ended.stderr
        assert f"{failed}  failed in the rollout " in ended.stderr
        assert "uses up --max-unavailable 1 → `rollout abort` gives it back" in ended.stderr
    score = lab.scoreboard()
    assert (score.cordons_left, sum(score.reboots.values()), score.most_unavailable) == ((failed,), 1, 1)
    assert rollout(lab, "abort", "--yes").code == 0
    assert not json.loads(rollout(lab, "plan", "-o", "json", "--set", "detect.sources=annotation").stdout)["blockers"]


def test_as_failures_they_count_in_their_own_run_alone(started: Start, rollout: Rollout) -> None:
    lab, two = asking(started("default", 6)), ("--max-unavailable", "2", "--disable-eviction")
    assert rollout(lab, *OPERATE, *two, "--canary", "1").code == 4
    assert len(lab.scoreboard().cordons_left) == 1
    assert rollout(lab, *OPERATE, *two).code == 4
    assert rollout(lab, *OPERATE, *two).code == 6
    score = lab.scoreboard()
    assert (len(score.cordons_left), score.most_unavailable) == (2, 2)
