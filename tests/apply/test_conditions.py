"""Lifecycle conditions on a lab: they follow each node, and none is left, whatever happens."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rollout.lab.api.resources import NODES
from rollout.lab.api.store import Change, Json
from rollout.lab.lab import Lab
from rollout.model.node_lifecycle import OUR_REASON
from tests.apply.conftest import Rollout, Started, killed_at, lose_hosts
from tests.apply.test_others_at_work import set_condition
from tests.state import unlock

SHOWING = ("--set", "labels.conditions=true")
WORKERS = ("--control-plane", "exclude", "--set", "waves.health-checks=1")
APPLY = ("apply", "--yes", "-o", "json", *WORKERS)


def ours_on(node: Json) -> tuple[str, ...]:
    conditions = node["status"].get("conditions") or []
    return tuple(found["type"] for found in conditions if found.get("reason") == OUR_REASON)


def left(lab: Lab) -> dict[str, tuple[str, ...]]:
    """The nodes that still have conditions of rollout."""
    nodes = lab.call(lambda: list(lab.store.items(NODES)))
    found = {node["metadata"]["name"]: ours_on(node) for node in nodes}
    return {name: types for name, types in found.items() if types}


@dataclass
class Shown:
    """The conditions of rollout that each node has had, one after the other."""

    by_node: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)

    def changed(self, change: Change) -> None:
        if change.resource is not NODES:
            return
        seen = self.by_node.setdefault(change.obj["metadata"]["name"], [()])
        if ours_on(change.obj) != seen[-1]:
            seen.append(ours_on(change.obj))


LIFE = [
    (),
    ("MaintenancePlanned",),
    ("DrainInProgress",),
    ("Drained",),
    ("Drained", "MaintenanceInProgress"),
    (),
]


def test_each_node_shows_its_way_and_nothing_is_left(started: Started, rollout: Rollout) -> None:
    """If its own conditions counted, each node in flight would use up the limit twice."""
    lab = started("default", 9)
    shown = Shown()
    lab.call(lambda: lab.store.subscribe(shown.changed))
    ended = rollout(lab, *APPLY, *SHOWING, "--max-unavailable", "2").ends(0)
    assert "waiting for nodes to be back" not in ended.stdout
    for name in ended.summary["succeeded"]:
        assert shown.by_node[name] == LIFE
    assert left(lab) == {}


def test_a_node_that_fails_shows_nothing_afterwards(started: Started, rollout: Rollout) -> None:
    lab = started("default", 5)
    lab.call(lambda: lose_hosts(lab))
    flags = ("--reboot-timeout", "2s", "--node", "worker-1", "--node", "worker-2")
    ended = rollout(lab, *APPLY, *SHOWING, *flags).ends(4)
    assert ended.outcomes == {"worker-1": "not-back"}
    assert left(lab) == {}


@pytest.mark.exhaustive
@pytest.mark.sample
@pytest.mark.parametrize("phase", ["cordoned", "draining", "rebooting", "ready"])
@pytest.mark.parametrize(
    "after",
    [("resume", "--yes", "-o", "json"), ("abort", "--yes", "--wait", "30s", "-o", "json")],
    ids=["resume", "abort"],
)
def test_whoever_continues_after_a_kill_removes_them(
    phase: str, after: tuple[str, ...], started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 5)
    killed_at(lab, tmp_path, phase, *APPLY, *SHOWING)
    assert left(lab)
    ended = rollout(lab, *after, *unlock(lab))
    assert ended.code == 0, ended.stderr
    assert left(lab) == {}


def test_the_next_rollout_removes_them_although_the_setting_is_off(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 5)
    # As a process leaves it that lost the API server at its very end.
    set_condition(lab, "worker-3", "MaintenancePlanned", "True", reason=OUR_REASON)
    rollout(lab, *APPLY, "--node", "worker-1").ends(0)
    assert left(lab) == {}


def test_an_abort_removes_them_although_nothing_else_is_left(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 5)
    set_condition(lab, "worker-3", "MaintenancePlanned", "True", reason=OUR_REASON)
    ended = rollout(lab, "abort", "--yes").ends(0)
    assert (
        "rollout's conditions will be removed from 1 node: worker-3" in ended.stdout + ended.stderr
    )
    assert left(lab) == {}


def test_doctor_checks_the_right_only_if_the_setting_is_on(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 5)
    right = "patch nodes/status"
    assert right in rollout(lab, "doctor", "-o", "json", *SHOWING).stdout
    assert right not in rollout(lab, "doctor", "-o", "json").stdout


def test_the_manifests_grant_the_right_only_if_the_setting_is_on(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 3)
    settings = tmp_path / "rollout.toml"
    settings.write_text("[labels]\nconditions = true\n")
    assert "nodes/status" in rollout(lab, "manifests", "roles", "--config", str(settings)).stdout
    assert "nodes/status" not in rollout(lab, "manifests", "roles").stdout
