"""A host that keeps us out tells nothing of its version, and what the endings say of such a night."""

import json
import re
import time
from collections.abc import Callable

import pytest

from rollout.cli.scoreboard import scoreboard_text
from rollout.lab.hosts.engine import UpdateEngine
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout

APPLY = ("apply", "--yes", "-o", "json", "--control-plane", "exclude", "--set", "waves.health-checks=1")


@pytest.mark.sample
@pytest.mark.parametrize(
    ("scenario", "held", "verdict"),
    [
        ("host-key-changes", False, "Not clean. Still cordoned: worker-2"),
        ("rollback", True, "Nothing is left behind. Rebooted, and on its old version: worker-2."),
    ],
)
def test_a_changed_host_key_holds_no_version_a_rollback_does_and_the_ending_says_what_went_wrong(
    started: Callable[[str, int], Lab], rollout: Rollout, scenario: str, *, held: bool, verdict: str
) -> None:
    lab = started(scenario, 4)
    assert rollout(lab, *APPLY).code == 4
    assert ("is held: it failed on" in rollout(lab, "status").stdout) is held
    assert verdict.lower() in scoreboard_text(lab.scoreboard()).lower()


def test_a_node_that_was_rolled_back_says_so_until_its_version_is_staged_again(
    started: Callable[[str, int], Lab], rollout: Rollout
) -> None:
    """Also once its failure is forgotten: the node itself remembers."""
    lab = started("rollback", 4)
    assert rollout(lab, *APPLY).code == 4
    assert rollout(lab, "release", "4152.2.0").code == 0
    told = r"rolled back from 4152\.2\.0, \d+s ago"
    assert re.search(rf"^worker-2 +up to date .* {told}$", rollout(lab, "status").stdout, re.MULTILINE)
    reasons = {row["node"]: row["reason"] for row in json.loads(rollout(lab, "status", "-o", "json").stdout)}
    assert re.fullmatch(f"no-update: {told}", reasons["worker-2"])
    assert "rolled back" not in reasons["worker-1"]
    lab.machines["worker-2"].engine = UpdateEngine.with_staged("4152.2.0", checked=int(time.time()))
    assert "rolled back from" not in rollout(lab, "status").stdout
