"""Rolling on, through the real program: who begins while whom is away, judged by the cluster and by
what was told.
"""

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.lab import Lab
from rollout.lab.scenario import NodeGroup, Role, Scenario, load_scenario
from tests.apply.conftest import Rollout, Started, command
from tests.state import inflict, record

Line = dict[str, Any]


ZONE = "topology.kubernetes.io/zone"


ROLLING = ("--strategy", "rolling", "--set", "waves.health-checks=1")


def roomy(workers: int, masters: int = 0) -> Scenario:
    """A cluster whose pods keep no two nodes apart."""
    default = load_scenario("default")
    kept = tuple(
        one for one in default.workloads if one.name in {"cilium", "frontend", "thumbnails"}
    )
    zones = ("eu-1a", "eu-1b", "eu-1c")
    groups = [NodeGroup(prefix="worker", count=workers, zones=zones)]
    groups += (
        [NodeGroup(prefix="cp", count=masters, role=Role.CONTROL_PLANE, zones=zones)]
        if masters
        else []
    )
    return msgspec.structs.replace(default, nodes=tuple(groups), workloads=kept)


def begun_at(lines: Iterable[Line]) -> dict[str, int]:
    """By node, the place of the line that tells of its cordon."""
    return {
        line["node"]: place
        for place, line in enumerate(lines)
        if line["type"] == "step" and line["phase"] == "cordoned" and not line["detail"]
    }


def ended_at(lines: Iterable[Line]) -> dict[str, int]:
    return {
        line["node"]: place for place, line in enumerate(lines) if line["type"] == "node_finished"
    }


def most_at_once(lines: list[Line]) -> int:
    begun = begun_at(lines)
    ended = ended_at(lines)
    return max(sum(begun[node] <= at < ended[node] for node in begun) for at in range(len(lines)))


def assert_clean(lab: Lab, *nodes: str, most: int) -> None:
    score = lab.scoreboard()
    assert {node: score.reboots[node] for node in nodes} == dict.fromkeys(nodes, 1)
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert score.killed == ()
    assert score.budgets_broken == ()
    assert score.most_unavailable <= most
    assert record(lab) is None


def workers(first: int, last: int) -> tuple[str, ...]:
    return tuple(f"worker-{number}" for number in range(first, last + 1))


def killed_once(
    process: subprocess.Popen[str], number: signal.Signals, *, finished: int
) -> list[Line]:
    """What it told up to a signal that comes once so many have finished, and others are under way."""
    assert process.stdout is not None
    lines = []
    for written in process.stdout:
        lines.append(json.loads(written))
        if len(ended_at(lines)) >= finished and len(begun_at(lines)) > len(ended_at(lines)):
            break
    process.send_signal(number)
    rest = process.communicate(timeout=60)[0]
    return lines + [json.loads(written) for written in rest.splitlines() if written.endswith("}")]


def test_a_saved_plan_with_canary_zones_and_control_plane_keeps_its_parts_apart(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started(roomy(7, masters=2), 9)
    flags = ("--canary", "1", "--spread-by", ZONE, "--max-unavailable", "2", *ROLLING)
    planned = rollout(lab, "plan", "--out", str(tmp_path / "my.plan"), "-o", "wide", *flags).ends(0)
    assert " (+" in planned.stdout
    assert "\nRules: --max-unavailable 2, " in planned.stdout
    assert ", --canary 1" in planned.stdout
    ended = rollout(lab, "apply", str(tmp_path / "my.plan"), "-o", "json").ends(0)
    begun = begun_at(ended.lines)
    finished = ended_at(ended.lines)
    parts = [[node["name"] for node in wave["nodes"]] for wave in ended.plan["waves"]]
    assert parts[0] == ["worker-1"]
    assert sorted(parts[-1]) == ["cp-1", "cp-2"]
    for earlier, later in pairwise(parts):
        assert max(finished[node] for node in earlier) < min(begun[node] for node in later)
    assert begun[parts[-1][1]] > finished[parts[-1][0]]
    assert_clean(lab, *(node for part in parts for node in part), most=2)


# Pools through the real program: each node by the rules of its pool, in one plan, one record,
# whoever goes on.


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


CANARIES = {"worker-1", "worker-4"}
REST = {"worker-2", "worker-3", "worker-5", "worker-6"}


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "pools.toml"
    path.write_text(POOLS)
    return path


def pools_of(plan: Any) -> list[dict[str, int]]:
    """By wave, how many nodes of which pool."""
    return [dict(Counter(node["pool"] for node in wave["nodes"])) for wave in plan["waves"]]


def assert_canary_first(lines: list[Line]) -> None:
    begun = begun_at(lines)
    ended = ended_at(lines)
    assert max(ended[node] for node in CANARIES & ended.keys()) < min(
        begun[node] for node in REST & begun.keys()
    )


def test_one_pool_after_another_each_with_its_own_limit(
    started: Started, rollout: Rollout, settings: Path
) -> None:
    lab = started(roomy(6), 6)
    shown = rollout(lab, "status", "-o", "json", "-c", str(settings))
    assert {row["node"]: row["pool"] for row in json.loads(shown.stdout)["nodes"]} == {
        **dict.fromkeys(CANARIES, "canary"),
        **dict.fromkeys(REST, "rest"),
    }
    ended = rollout(lab, "apply", "--yes", "-o", "json", "-c", str(settings)).ends(0)
    assert pools_of(ended.plan) == [{"canary": 1}, {"canary": 1}, {"rest": 2}, {"rest": 2}]
    assert ended.plan["policy"]["pools"][1]["drain_timeout"] == "5m"
    assert_canary_first(ended.lines)
    assert most_at_once(ended.lines) == 2
    assert_clean(lab, *workers(1, 6), most=2)


def test_killed_it_is_gone_on_with_by_the_pools_of_the_record(
    started: Started, rollout: Rollout, settings: Path, tmp_path: Path
) -> None:
    lab = started(roomy(6), 6)
    process = command(
        lab,
        tmp_path,
        *("apply", "--yes", "-o", "json", "-c", str(settings), "--set", "lock.duration=2s"),
    )
    killed_once(process, signal.SIGKILL, finished=1)
    inflict(lab, HostFaults(reboot=RebootFault.NEVER_RETURNS), "worker-3")
    ended = rollout(lab, "resume", "--yes", "-o", "json").ends(4)
    assert pools_of(ended.plan)[-2:] == [{"rest": 2}, {"rest": 2}]
    assert all("rest" not in wave for wave in pools_of(ended.plan)[:-2])
    assert_canary_first(ended.lines)
    (failed,) = ended.summary["failed"]
    assert failed["node"] == "worker-3"
    assert "--reboot-timeout 4s" in failed["message"]


def test_pools_that_roll_side_by_side_keep_to_their_own_limits(
    started: Started, rollout: Rollout, settings: Path
) -> None:
    settings.write_text(
        POOLS.replace('after = ["canary"]\n', "").replace(
            "[[pool]]", 'strategy = "rolling"\n[[pool]]', 1
        )
    )
    lab = started(roomy(6), 6)
    ended = rollout(
        lab, "apply", "--yes", "-o", "json", "-c", str(settings), "--reboot-timeout", "60s"
    ).ends(0)
    (wave,) = ended.plan["waves"]
    pools = {node["name"]: node["pool"] for node in wave["nodes"]}
    canaries = [line for line in ended.lines if pools.get(line.get("node", "")) == "canary"]
    assert most_at_once(ended.lines) == 3
    assert most_at_once(canaries) == 1
    assert_clean(lab, *workers(1, 6), most=3)
