"""Clusters copied and rehearsed by the real program: what was forecast of each, and what its rehearsal took.

Each is a lab that is planned with `--snapshot`; another lab is the copy, and `apply` runs on that.
Seconds are simulated, from the first wave to the end of the run. The program's pauses are real
seconds, so the faster the lab, the more they weigh: at a speed of 2, a few side by side, most of
the time is waiting.

Run: python tests/benchmarks/rehearsal.py [--speed 2] [--at-once 3] [--limit 2] [--only WORD]
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from rollout.lab.copied import scenario_like
from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.ended import end_of, start

ROOT = Path(__file__).parents[2]

# By scenario, and how many nodes of it.
CLUSTERS = (
    ("typical", 6),
    ("typical", 10),
    ("typical-large", 12),
    ("typical-large", 24),
    ("default", 6),
    ("default", 12),
    ("large", 12),
    ("places-spare", 21),
    ("databases", 5),
    (str(ROOT / "tests/apply/ordinary.yaml"), 6),
    (str(ROOT / "tests/benchmarks/reported.yaml"), 12),
    (str(ROOT / "tests/apply/single.yaml"), 6),
    (str(ROOT / "tests/benchmarks/leaving.yaml"), 5),
)
SETTINGS = ("--set", "drain.restart=blocked", "--set", "drain.wait-for-completion=job-name")


@dataclass(frozen=True)
class Agreement:
    """Simulated seconds, and how many nodes were taken through."""

    nodes: int
    forecast: float
    rehearsal: float


def main() -> None:
    """Measure all of them, and print a row for each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--speed", type=float, default=2.0)
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--limit", default="2")
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    chosen = [cluster for cluster in CLUSTERS if asked.only in cluster[0]]
    print(f"{'cluster':<18}{'nodes':>6}{'forecast':>10}{'rehearsal':>11}{'of it':>8}", flush=True)
    with ThreadPoolExecutor(asked.at_once) as pool:
        found = pool.map(partial(measure, asked.speed, asked.limit), chosen)
        for (name, _), one in zip(chosen, found, strict=True):
            share = one.rehearsal / one.forecast
            print(
                f"{Path(name).stem:<18}{one.nodes:>6}{one.forecast:>10.0f}{one.rehearsal:>11.0f}{share:>8.2f}",
                flush=True,
            )


def measure(speed: float, limit: str, cluster: tuple[str, int]) -> Agreement:
    """Plan one cluster, and rehearse the plan on its copy."""
    name, nodes = cluster
    flags = ("--max-unavailable", limit, "-o", "json", *SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        file = home / "cluster.json"
        with Lab(scale(load_scenario(name), nodes), directory=home / "lab", speed=speed) as lab:
            planned = end_of(
                start(home, lab.environment, ("plan", *flags, "--snapshot", str(file)))
            )
        plan = json.loads(planned.stdout)
        with Lab(scenario_like(file), directory=home / "copy", speed=speed) as copy:
            ended = end_of(start(home, copy.environment, ("apply", "--yes", *flags)), seconds=3600)
        assert ended.code == 0, ended.stderr
    return Agreement(
        plan["summary"]["nodes"], plan["estimate"]["seconds"], speed * seconds_of(ended.stdout)
    )


def seconds_of(lines: str) -> float:
    """How long a run took, from its first wave on."""
    events: list[Mapping[str, str]] = [json.loads(line) for line in lines.splitlines()]
    began = next(event["at"] for event in events if event["type"] == "wave_started")
    return (
        datetime.fromisoformat(events[-1]["at"]) - datetime.fromisoformat(began)
    ).total_seconds()


if __name__ == "__main__":
    main()
