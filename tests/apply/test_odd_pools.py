"""Pools as people write them by mistake, or find them at night: the real program, on six nodes in three zones."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollout.errors import ExitCode
from rollout.lab.api.resources import PODS
from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario
from tests.apply.conftest import Rollout
from tests.apply.test_rolling import inflict, roomy

Started = Callable[[Scenario | str, int], Lab]
ZONE = "topology.kubernetes.io/zone"
EARLY, LATE = {"worker-1", "worker-4"}, {"worker-2", "worker-3", "worker-5", "worker-6"}
IN_TURN = f"""
max-unavailable = 2
health-checks = 1

[[pool]]
name = "early"
selector = "{ZONE}=eu-1a"

[[pool]]
name = "late"
selector = "{ZONE}"
after = ["early"]
"""


def planned(lab: Lab, rollout: Rollout, settings: Path, text: str, *flags: str) -> Any:
    settings.write_text(text)
    ended = rollout(lab, "plan", "-o", "json", "-c", str(settings), *flags)
    assert ended.code == 0, ended.stderr
    return json.loads(ended.stdout)


def waves(plan: Any) -> list[dict[str, int]]:
    return [dict(Counter(node["pool"] for node in wave["nodes"])) for wave in plan["waves"]]


def lone_pods(lab: Lab, nodes: set[str]) -> None:
    """A pod without a controller on each of them, which no drain takes away without --force."""
    for node in nodes:
        metadata = {"name": f"lone-on-{node}", "namespace": "default"}
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "registry.example/app:1"}]}
        lab.store.create(PODS, {"metadata": metadata, "spec": spec})


def test_overlapping_pools_an_empty_one_and_limits_above_the_rollouts(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab, settings = started(roomy(6), 6), tmp_path / "my.toml"
    overlapping = planned(lab, rollout, settings, IN_TURN)
    assert waves(overlapping) == [{"early": 2}, {"late": 2}, {"late": 2}]

    none = IN_TURN.replace(f'selector = "{ZONE}=eu-1a"', 'selector = "tier=none"')
    assert waves(planned(lab, rollout, settings, none)) == [{"late": 2}, {"late": 2}, {"late": 2}]

    above = IN_TURN.replace('after = ["early"]', 'max-unavailable = 9\nafter = ["early"]')
    assert waves(planned(lab, rollout, settings, above)) == [{"early": 2}, {"late": 2}, {"late": 2}]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("max-unavailble = 1", "[[pool]] number 2 (late): unknown setting 'max-unavailble'"),
        ('after = ["late"]', "pool 'late': after: 'late' wait"),
        ('after = ["nightly"]', "pool 'late': after: there is no pool 'nightly'"),
        ('name = "early"', "Cannot overwrite a value"),
    ],
)
def test_what_no_pool_can_be_is_a_usage_error_that_names_it(
    started: Started, rollout: Rollout, tmp_path: Path, line: str, says: str
) -> None:
    lab, settings = started(roomy(6), 6), tmp_path / "my.toml"
    settings.write_text(IN_TURN.replace('after = ["early"]', line))
    ended = rollout(lab, "apply", "--yes", "-c", str(settings))
    assert (ended.code, "Traceback" in ended.stderr) == (ExitCode.USAGE, False), ended.stderr
    assert says in ended.stderr


def test_a_pool_whose_nodes_are_all_blocked_stops_it_or_is_left_out(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab, settings = started(roomy(6), 6), tmp_path / "my.toml"
    lab.call(lambda: lone_pods(lab, EARLY))
    plan = planned(lab, rollout, settings, IN_TURN)
    assert {(entry["node"], entry["kind"]) for entry in plan["blockers"]} == {(n, "unmanaged-pod") for n in EARLY}
    assert rollout(lab, "apply", "--yes", "-c", str(settings)).code == ExitCode.BLOCKED
    ended = rollout(lab, "apply", "--yes", "-o", "json", "-c", str(settings), "--skip", "blocked")
    assert ended.code == 0, ended.stderr
    assert set(ended.summary["succeeded"]) == LATE
    assert {
        entry["node"]: entry["pool"] for entry in ended.plan["excluded"] if entry["node"] in EARLY
    } == dict.fromkeys(EARLY, "early")


def test_what_comes_after_a_pool_that_failed_is_not_begun(started: Started, rollout: Rollout, tmp_path: Path) -> None:
    lab, settings = started(roomy(6), 6), tmp_path / "my.toml"
    settings.write_text(IN_TURN)
    for name in EARLY:
        inflict(lab, name, HostFaults(reboot=RebootFault.NEVER_RETURNS))
    ended = rollout(lab, "apply", "--yes", "-o", "json", "-c", str(settings), "--reboot-timeout", "4s")
    assert ended.code == ExitCode.PARTIAL
    assert {entry["node"] for entry in ended.summary["failed"]} == EARLY
    assert set(ended.summary["not_started"]) == LATE
