"""What the real program costs on thousands of nodes: `plan` and `status` beside curl of the same lists, and `apply`.

The lab is a process of its own, and its CPU is told apart. Seconds of CPU count the program's
worker processes; MB are the peak of its largest process. Bring the lab up first: 5,000 nodes and
150,000 pods take minutes, and some GB.

Run: python tests/benchmarks/fleet.py plan [--nodes 5000] [--scenario large] [--limits 1,50,10%]
     python tests/benchmarks/fleet.py apply [--nodes 1000] [--scenario default] [--limits 100]
     [--speed 5]
     Either with --profile FOLDER, where cProfile's statistics of each command's first process are left.
"""

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parents[2]))

from rollout.gather.cluster.rivals import DEPLOYMENTS
from rollout.gather.cluster.snapshot import (
    ATTACHMENTS,
    BUDGETS,
    DAEMON_SETS,
    NODES,
    PODS,
    VOLUMES,
)
from tests.benchmarks.lab_process import Cost, LabProcess, lab_process, measured

# Those that every plan reads.
LISTS = (NODES, PODS, BUDGETS, DAEMON_SETS, DEPLOYMENTS, ATTACHMENTS, VOLUMES)
PAGE = 500


def main() -> None:
    """Bring up the lab, and measure what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("plan", "apply"))
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--scenario")
    parser.add_argument("--limits")
    parser.add_argument("--speed", type=float)
    parser.add_argument("--profile", type=Path)
    asked = parser.parse_args()
    apply = asked.what == "apply"
    nodes = asked.nodes or (1000 if apply else 5000)
    scenario = asked.scenario or ("default" if apply else "large")
    limits = (asked.limits or ("100" if apply else "1,50,10%")).split(",")
    began = time.monotonic()
    with lab_process(scenario, speed=asked.speed or (5.0 if apply else 1.0), nodes=nodes) as lab:
        print(
            f"{scenario}, {nodes} nodes: up after {time.monotonic() - began:.0f} s, {lab.cpu:.0f} s"
            " of CPU",
            flush=True,
        )
        print(f"{'':<24}{'wall s':>9}{'CPU s':>9}{'MB':>7}{'lab CPU s':>11}", flush=True)
        if not apply:
            measure_reading(lab)
            measure_status(lab)
        for limit in limits:
            (measure_apply if apply else measure_plan)(lab, limit, asked.profile)


def measure_reading(lab: LabProcess) -> None:
    """Curl of what a plan reads, by the same pages, and the program's reading alone: a plan of one
    node.
    """
    before = lab.cpu
    cost = curl(lab)
    show("curl of the lists", cost, lab.cpu - before)
    before = lab.cpu
    words = program(None, "plan", "--node", "worker-1", "-o", "json")
    show("plan of one node", measured(lab, words, lab.directory / "plan.json"), lab.cpu - before)


def measure_status(lab: LabProcess) -> None:
    before = lab.cpu
    cost = measured(lab, program(None, "status", "-o", "json"), lab.directory / "status.json")
    show("status", cost, lab.cpu - before)
    print(f"  {cost.cpu_besides_ssh:.1f} s of CPU besides SSH", flush=True)


def curl(lab: LabProcess) -> Cost:
    """All pages of the lists, one after another, by curl."""
    context = yaml.safe_load(Path(lab.environment["KUBECONFIG"]).read_text())
    server = context["clusters"][0]["cluster"]["server"]
    token = context["users"][0]["user"]["token"]
    command = ["curl", "-sk", "-H", f"Authorization: Bearer {token}"]
    began = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = 0
    for path in LISTS:
        rest: str | None = ""
        while rest is not None:
            page = subprocess.run(
                [*command, f"{server}{path}?limit={PAGE}{rest}"], check=True, capture_output=True
            )
            peak = max(peak, len(page.stdout))
            more = re.search(rb'"continue":\s*"([^"]+)"', page.stdout[:1000])
            rest = f"&continue={more[1].decode()}" if more else None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(0, time.monotonic() - began, cpu, peak / 1e6)


def measure_plan(lab: LabProcess, limit: str, profile: Path | None) -> None:
    """The whole plan."""
    before = lab.cpu
    output = lab.directory / "plan.json"
    words = program(
        profile and profile / f"plan-{limit}", "plan", "-o", "json", "--max-unavailable", limit
    )
    show(f"plan, limit {limit}", measured(lab, words, output), lab.cpu - before)
    plan = json.loads(output.read_bytes())
    print(
        f"  {plan['summary']}, {len(plan['excluded'])} excluded, {len(plan['warnings'])} warnings",
        flush=True,
    )


def measure_apply(lab: LabProcess, limit: str, profile: Path | None) -> None:
    """The whole rollout."""
    before = lab.cpu
    output = lab.directory / "apply.json"
    words = program(
        profile and profile / f"apply-{limit}",
        *("apply", "--yes", "-o", "json", "--max-unavailable", limit),
    )
    cost = measured(lab, words, output)
    show(f"apply, limit {limit}", cost, lab.cpu - before)
    lines = [json.loads(line) for line in output.read_bytes().splitlines()]
    summary = lines[-1]
    scores = lab.scores
    done = len(summary["succeeded"])
    away = scores["most_unavailable"]
    evictions = scores["evictions"]
    twice = scores["moved_twice"]
    broken = len(scores["budgets_broken"])
    print(
        f"  ended with {cost.code}: {done} succeeded, {len(summary['failed'])} failed;"
        f" {cost.cpu / max(1, done):.3f}"
    )
    print(
        f"  s of CPU a node; {away} away at most, {evictions} evictions, {twice} twice, {broken}"
        " budgets broken"
    )


def program(profile: Path | None, *words: str) -> Sequence[str]:
    """The real program, profiled where somebody wants that."""
    if profile is None:
        return [sys.executable, "-m", "rollout", *words]
    return [sys.executable, "-m", "cProfile", "-o", str(profile.resolve()), "-m", "rollout", *words]


def show(title: str, cost: Cost, lab: float) -> None:
    """A line of the table."""
    print(
        f"{title:<24}{cost.wall:>9.1f}{cost.cpu:>9.1f}{cost.memory:>7.0f}{lab:>11.1f}", flush=True
    )
    assert cost.code in {0, 4}, f"{title} ended with {cost.code}"


if __name__ == "__main__":
    main()
