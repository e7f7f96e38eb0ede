"""Hosts that take 30 s and 10 min to boot, side by side: how long rolling and waves take, as ratios to the ideal.

Ideal is the total work over the limit, or the longest node where that is longer. First the real dispatcher in
simulated time; then, with `lab`, the real program over a lab's hosts, twenty times as fast: work is what the program's
own lines say that each node took. The nodes remember their last runs, as they do after any; `unknown` forgets that.

Run: python tests/benchmarks/rolling.py [lab [unknown]]
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2]))

from rollout.lab.hosts.faults import HostFaults
from rollout.lab.lab import Lab
from rollout.lab.scenario import HostOverride, NodeGroup, Scenario, Selection, load_scenario
from rollout.model.gates import GatePolicy
from rollout.model.marks import LAST_RESULT
from rollout.model.plan import Rolling
from rollout.model.policy import Policy
from rollout.planning.layout.rolling import slow_first
from tests.ended import end_of, start
from tests.execution.simulated import World

QUICK, SLOW = 30, 600
SPEED = 20
WORKERS, LIMIT = 24, 3
SLOW_ONES = (2, 7, 12, 17, 22)
LIMITS = (1, 2, 3, 5, 10)


def simulated() -> None:
    """The dispatcher alone, each quarter of the nodes slow."""
    print(f"{'nodes':>6}{'limit':>7}{'ideal s':>9}{'rolling':>9}{'waves':>8}   (over the ideal)")
    for nodes in (12, 60, 240):
        for limit in LIMITS:
            seconds = {f"node-{number}": SLOW if number % 4 == 0 else QUICK for number in range(1, nodes + 1)}
            world = World(slow_first(seconds), policy=Policy(gates=GatePolicy(health_checks=1)))
            world.run(Rolling(limit), limit=limit)
            ideal = max(sum(seconds.values()) / limit, SLOW)
            waves = in_waves(list(seconds.values()), limit)
            print(f"{nodes:>6}{limit:>7}{ideal:>9.0f}{world.makespan / ideal:>9.3f}{waves / ideal:>8.2f}", flush=True)


def in_waves(seconds: Sequence[float], limit: int) -> float:
    return sum(max(seconds[first : first + limit]) for first in range(0, len(seconds), limit))


def hosts(*, known: bool) -> Scenario:
    """Workers whose pods keep no two apart, some of them slow; where `known`, they remember what they took."""
    default = load_scenario("default")
    names = [f"worker-{number}" for number in SLOW_ONES]
    kept = tuple(one for one in default.workloads if one.name in {"cilium", "frontend", "thumbnails"})
    overrides = [
        HostOverride(select=Selection(), faults=HostFaults(boot_seconds=QUICK), annotations=took(QUICK, known))
    ]
    slow = HostFaults(boot_seconds=SLOW)
    overrides += [HostOverride(select=Selection(names=tuple(names)), faults=slow, annotations=took(SLOW, known))]
    group = NodeGroup(prefix="worker", count=WORKERS, zones=("a", "b", "c"))
    return msgspec.structs.replace(default, nodes=(group,), workloads=kept, hosts=tuple(overrides))


def took(seconds: int, known: bool) -> dict[str, str]:  # noqa: FBT001 - a figure of the benchmark
    return {LAST_RESULT: json.dumps({"outcome": "succeeded", "took": f"{seconds}s"})} if known else {}


def lasted(strategy: str, *, known: bool) -> None:
    """The real program; seconds are the lab's."""
    with (
        tempfile.TemporaryDirectory() as home,
        Lab.start(hosts(known=known), directory=Path(home) / "lab", speed=SPEED) as lab,
    ):
        flags = ("--strategy", strategy, "--max-unavailable", str(LIMIT), "--set", "waves.health-checks=1")
        ended = end_of(start(Path(home), lab.environment, ("apply", "--yes", "-o", "json", *flags)), 3600)
        score = lab.scoreboard()
    assert ended.code == 0, ended.stderr
    tell(strategy, ended.lines)
    print(f"{'':>9} most away {score.most_unavailable}, budgets broken {len(score.budgets_broken)}", flush=True)


def tell(strategy: str, lines: Sequence[dict[str, Any]]) -> None:
    work = [line["seconds"] * SPEED for line in lines if line["type"] == "node_finished"]
    first = next(line["at"] for line in lines if line["type"] == "wave_started")
    last = [line["at"] for line in lines if line["type"] == "node_finished"][-1]
    whole = (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds() * SPEED
    ideal = max(sum(work) / LIMIT, *work)
    print(f"{strategy:>9} {whole:6.0f} s, ideal {ideal:6.0f} s: {whole / ideal:.3f}", flush=True)


def main() -> None:
    """The dispatcher, then the program where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("where", choices=("simulated", "lab"), nargs="?", default="simulated")
    parser.add_argument("past", choices=("known", "unknown"), nargs="?", default="known")
    asked = parser.parse_args()
    simulated()
    if asked.where == "lab":
        for strategy in ("rolling", "waves"):
            lasted(strategy, known=asked.past == "known")


if __name__ == "__main__":
    main()
