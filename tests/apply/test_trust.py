"""A host that keeps us out tells nothing of its version, and what the endings say of such a night."""

from collections.abc import Callable

import pytest

from rollout.cli.scoreboard import scoreboard_text
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout

APPLY = ("apply", "--yes", "-o", "json", "--control-plane", "exclude", "--health-checks", "1")


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
