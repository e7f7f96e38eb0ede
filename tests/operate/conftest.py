"""Operating processes on a lab, and what they must leave to persons."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rollout.lab.api.resources import CONFIGMAPS, LEASES
from rollout.lab.api.store import Json
from rollout.lab.lab import Lab
from tests.apply.conftest import command, rollout, started  # noqa: F401 - fixtures

RULES = ("-o", "json", "--max-unavailable", "2", "--set", "waves.health-checks=1")
ONCE = ("operate", "--once", *RULES)
ORIGIN = "node-rollout.dev/origin"


@contextmanager
def killed_at(lab: Lab, home: Path, phase: str, *arguments: str) -> Iterator[str]:
    """A command that is killed as soon as it tells of a node in this phase; that node."""
    process = command(lab, home, *arguments)
    assert process.stdout is not None
    node = ""
    for written in process.stdout:
        line = json.loads(written)
        if line["type"] == "step" and line["phase"] == phase:
            node = line["node"]
            break
    process.kill()
    process.communicate()
    assert node
    yield node


def record(lab: Lab) -> Json | None:
    return lab.call(lambda: lab.store.get(CONFIGMAPS, "node-rollout", "kube-system"))


def lease_of(lab: Lab) -> Json:
    lease = lab.call(lambda: lab.store.get(LEASES, "node-rollout", "kube-system"))
    assert lease is not None
    return lease


def open_now(hours: int = 0) -> str:
    """A window of an hour, around now or so many hours away."""
    begin = datetime.now(UTC) + timedelta(hours=hours, minutes=-30)
    return f"{begin:%H:%M} 1h"


def assert_all_done(lab: Lab) -> None:
    score = lab.scoreboard()
    assert set(score.reboots.values()) == {1}, score
    assert (score.cordons_left, score.annotations_left, score.taints_left) == ((), {}, ())
    assert (score.killed, score.budgets_broken, score.rebooted_undrained) == ((), (), ())
    assert record(lab) is None


def assert_untouched(lab: Lab, *, evictions: bool = False) -> None:
    """No host rebooted, nothing left; `evictions`: an earlier drain may have evicted."""
    score = lab.scoreboard()
    assert not any(score.reboots.values()), score
    assert (score.cordons_left, score.annotations_left) == ((), {})
    assert evictions or not score.evictions
