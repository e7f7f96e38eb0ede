"""Pools through the real program: each node by the rules of its pool, in one plan, one record, whoever goes on."""

import json
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario
from tests.apply.conftest import Rollout, command
from tests.apply.test_rolling import (
    Line,
    assert_clean,
    begun_at,
    ended_at,
    inflict,
    killed_once,
    most_at_once,
    roomy,
    workers,
)

Started = Callable[[Scenario | str, int], Lab]
POOLS = """
[waves]
max-unavailable = 3
health-checks = 1

[[pool]]
name = "canary"
selector = "topology.kubernetes.io/zone=eu-1a"
max-unavailable = 1

[[pool]]
name = "rest"
selector = "topology.kubernetes.io/zone in (eu-1b, eu-1c)"
after = ["canary"]
max-unavailable = "50%"
drain-timeout = "5m"
reboot-timeout = "4s"
"""
CANARIES, REST = {"worker-1", "worker-4"}, {"worker-2", "worker-3", "worker-5", "worker-6"}


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "pools.toml"
    path.write_text(POOLS)
    return path


def pools_of(plan: Any) -> list[dict[str, int]]:
    """By wave, how many nodes of which pool."""
    return [dict(Counter(node["pool"] for node in wave["nodes"])) for wave in plan["waves"]]


def assert_canary_first(lines: list[Line]) -> None:
    begun, ended = begun_at(lines), ended_at(lines)
    assert max(ended[node] for node in CANARIES & ended.keys()) < min(begun[node] for node in REST & begun.keys())


def test_one_pool_after_another_each_with_its_own_limit(started: Started, rollout: Rollout, settings: Path) -> None:
    lab = started(roomy(6), 6)
    shown = rollout(lab, "status", "-o", "json", "-c", str(settings))
    assert {row["node"]: row["pool"] for row in json.loads(shown.stdout)["nodes"]} == {
        **dict.fromkeys(CANARIES, "canary"),
        **dict.fromkeys(REST, "rest"),
    }
    ended = rollout(lab, "apply", "--yes", "-o", "json", "-c", str(settings))
    assert ended.code == 0, ended.stderr
    assert pools_of(ended.plan) == [{"canary": 1}, {"canary": 1}, {"rest": 2}, {"rest": 2}]
    assert ended.plan["policy"]["pools"][1]["drain_timeout"] == "5m"
    assert_canary_first(ended.lines)
    assert most_at_once(ended.lines) == 2
    assert_clean(lab, *workers(1, 6), most=2)


@pytest.mark.exhaustive
def test_each_node_has_its_pools_patience(started: Started, rollout: Rollout, settings: Path) -> None:
    lab = started(roomy(6), 6)
    inflict(lab, "worker-1", HostFaults(boot_seconds=240))
    inflict(lab, "worker-2", HostFaults(reboot=RebootFault.NEVER_RETURNS))
    ended = rollout(lab, "apply", "--yes", "-c", str(settings), "--reboot-timeout", "60s")
    assert ended.code == 4
    assert "worker-1: succeeded" in ended.stderr
    assert "--reboot-timeout 4s" in ended.stdout
    assert "✘ worker-2  the host is not back within --reboot-timeout 4s" in ended.stdout


def test_killed_it_is_gone_on_with_by_the_pools_of_the_record(
    started: Started, rollout: Rollout, settings: Path, tmp_path: Path
) -> None:
    lab = started(roomy(6), 6)
    process = command(lab, tmp_path, "apply", "--yes", "-o", "json", "-c", str(settings), "--set", "lock.duration=2s")
    killed_once(process, signal.SIGKILL, finished=1)
    inflict(lab, "worker-3", HostFaults(reboot=RebootFault.NEVER_RETURNS))
    ended = rollout(lab, "resume", "--yes", "-o", "json")
    assert ended.code == 4
    assert pools_of(ended.plan)[-2:] == [{"rest": 2}, {"rest": 2}]
    assert all("rest" not in wave for wave in pools_of(ended.plan)[:-2])
    assert_canary_first(ended.lines)
    (failed,) = ended.summary["failed"]
    assert failed["node"] == "worker-3"
    assert "--reboot-timeout 4s" in failed["message"]
