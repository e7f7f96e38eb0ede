"""Operating processes on a lab, and what they must leave to persons."""

from datetime import UTC, datetime, timedelta

from rollout.lab.lab import Lab
from tests.apply.conftest import command, inbox, rollout, started  # noqa: F401 - fixtures
from tests.state import record

RULES = ("-o", "json", "--max-unavailable", "2", "--set", "waves.health-checks=1")
ONCE = ("operate", "--once", *RULES)
ORIGIN = "node-rollout.dev/origin"


def open_now(hours: int = 0) -> str:
    """A window of an hour, around now or so many hours away."""
    begin = datetime.now(UTC) + timedelta(hours=hours, minutes=-30)
    return f"{begin:%H:%M} 1h"


def assert_all_done(lab: Lab) -> None:
    score = lab.scoreboard()
    assert set(score.reboots.values()) == {1}, score
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert score.taints_left == ()
    assert score.killed == ()
    assert score.budgets_broken == ()
    assert score.rebooted_undrained == ()
    assert record(lab) is None


def assert_untouched(lab: Lab, *, evictions: bool = False) -> None:
    """No host rebooted, nothing left; `evictions`: an earlier drain may have evicted."""
    score = lab.scoreboard()
    assert not any(score.reboots.values()), score
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert evictions or not score.evictions
