"""The ordinary clusters, rolled by the real program and by hand: what each way takes, and what it does to the pods.

By hand: node after node kubectl drain, ssh reboot, wait until it is Ready on another boot, kubectl
uncordon. The program runs at each limit and with every strategy that it knows. Each way has a fresh
lab, in a process of its own, and the journal of one run on such a lab, so that estimates have a
past.

`s` are simulated seconds of the whole command, `x` how many times faster than by hand, `est` the
plan's estimate to what the run took, `ev/pod` evictions to pods that had to move, `twice` evictions
of pods that had moved before, `broken` budgets, `away` the most nodes, `bound` how many waves no
layout by the same rules can do without, and `CPU s` the program's own.

The program's pauses are real seconds, so the faster the lab, the more they weigh: at a speed of 1
or 2, with a few ways side by side, most of the time is waiting, and the machine does not matter.

Run: python tests/benchmarks/typical.py [--scenario typical|typical-large|both] [--limits 1,2,6,10]
[--speed 2]
     [--only WORD] [--no-by-hand] [--at-once 4] [--keep FOLDER]; `--only` keeps the ways whose flags
     hold the word, and what each of them printed goes to the folder.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.lab_process import LabProcess, client_environment, lab_process, measured

KUBECTL = "/usr/bin/kubectl"
# How many nodes each has.
SCENARIOS = {"typical": 6, "typical-large": 100}
BOOT_OF = "jsonpath={.status.nodeInfo.bootID} {.status.conditions[?(@.type=='Ready')].status}"
# What may be chosen, each with the values to try.
FLAGS: Sequence[Sequence[Sequence[str]]] = (
    (("--strategy", "waves"), ("--strategy", "rolling")),
    ((), ("--set", "drain.prefer-no-schedule-taint=false")),
)


@dataclass(frozen=True)
class Way:
    """One way to roll the cluster; no limit is by hand."""

    limit: int | None
    flags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What stands in the table."""
        if self.limit is None:
            return "by hand"
        return " ".join((f"{self.limit:>2}", *(flag.removeprefix("--") for flag in self.flags)))


@dataclass(frozen=True)
class Measured:
    """Seconds of wall, of the plan's estimate and of the run in it, of CPU; and what the lab has
    seen.
    """

    seconds: float
    estimate: float
    ran: float
    cpu: float
    evictions: int
    twice: int
    broken: int
    away: int
    waves: int
    bound: int


def main() -> None:
    """Measure all ways on each cluster."""
    asked = arguments()
    if asked.keep:
        asked.keep.mkdir(parents=True, exist_ok=True)
    for scenario in SCENARIOS if asked.scenario == "both" else (asked.scenario,):
        measure_all(asked, scenario)


def measure_all(asked: argparse.Namespace, scenario: str) -> None:
    """Measure all ways on one cluster, and print a row for each."""
    journal = trained(scenario, asked.speed)
    print(
        f"{scenario}, {SCENARIOS[scenario]} nodes, {asked.speed:g} simulated seconds in a real one"
    )
    print(f"{'limit':<46}{'s':>7}{'x':>6}{'est':>6}{'evict':>7}{'ev/pod':>8}", end="")
    print(f"{'twice':>7}{'broken':>8}{'away':>6}{'waves':>7}{'bound':>7}{'CPU s':>7}", flush=True)
    base: float | None = None
    tried = list(
        ways([int(limit) for limit in asked.limits.split(",")], asked.only, by_hand=asked.by_hand)
    )
    with ThreadPoolExecutor(asked.at_once) as pool:
        figures = pool.map(partial(measure, scenario, asked.speed, journal, asked.keep), tried)
        for way, result in zip(tried, figures, strict=True):
            base = base or (result.seconds if way.limit is None else None)
            print(row(way, result, asked.speed, base), flush=True)
            assert result.broken == 0, "a budget was broken"
            assert result.away <= (way.limit or 1), "too many nodes were away"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenario", choices=(*SCENARIOS, "both"), default="typical")
    parser.add_argument("--limits", default="1,2,6,10")
    parser.add_argument("--speed", type=float, default=2.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--no-by-hand", dest="by_hand", action="store_false")
    return parser.parse_args()


def ways(limits: Sequence[int], only: str, *, by_hand: bool) -> Iterator[Way]:
    """By hand, then each limit with each combination of what the program knows."""
    if by_hand:
        yield Way(None)
    for limit, chosen in product(limits, product(*FLAGS)):
        way = Way(limit, tuple(word for flag in chosen for word in flag))
        if only in way.name:
            yield way


def row(way: Way, measured: Measured, speed: float, base: float | None) -> str:
    """A line of the table."""
    pods = measured.evictions - measured.twice
    faster = f"{base / measured.seconds:.2f}" if base else ""
    estimate = f"{measured.estimate / measured.ran:.2f}" if measured.ran else ""
    return (
        f"{way.name:<46}{measured.seconds * speed:>7.0f}{faster:>6}{estimate:>6}{measured.evictions:>7}"
        f"{measured.evictions / pods:>8.2f}{measured.twice:>7}{measured.broken:>8}{measured.away:>6}"
        f"{measured.waves:>7}{measured.bound or '':>7}{measured.cpu:>7.1f}"
    )


def trained(scenario: str, speed: float) -> str:
    """The journal of a run on such a lab, of its first two nodes together."""
    with lab_process(scenario, speed=speed) as lab:
        path = lab.directory / "journal.jsonl"
        few = ("--node", "worker-1", "--node", "worker-2", "--max-unavailable", "2")
        rollout(lab, "apply", "--yes", "--set", f"output.journal={path}", *few)
        return Path(path).read_text(encoding="utf-8")


def measure(scenario: str, speed: float, journal: str, keep: Path | None, way: Way) -> Measured:
    """One way on a fresh lab."""
    with lab_process(scenario, speed=speed) as lab:
        remember(lab, journal)
        began = time.monotonic()
        if way.limit is None:
            waves = len(roll_by_hand(lab))
            bound = 0
            estimate = 0.0
            ran = 0.0
            cpu = 0.0
        else:
            lines = (
                keep / f"{scenario} {way.name.strip()}.jsonl"
                if keep
                else lab.directory / "lines.jsonl"
            )
            waves, bound, estimate, ran, cpu = roll(
                lab, lines, "--max-unavailable", str(way.limit), *way.flags
            )
        seconds = time.monotonic() - began
        scores = lab.scores
    assert set(scores["reboots"].values()) == {1}, scores["reboots"]
    counts = (
        scores["evictions"],
        scores["moved_twice"],
        len(scores["budgets_broken"]),
        scores["most_unavailable"],
    )
    return Measured(seconds, estimate, ran, cpu, *counts, waves, bound)


def remember(lab: LabProcess, journal: str) -> None:
    """Let it be a run of this lab's cluster."""
    uid = run(lab, KUBECTL, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
    first, _, rest = journal.partition("\n")
    head = json.loads(first)
    head["cluster"]["uid"] = uid
    runs = lab.directory / ".local/state/rollout/runs"
    runs.mkdir(parents=True)
    (runs / "20200101T000000Z-training.jsonl").write_text(f"{json.dumps(head)}\n{rest}")


def roll(lab: LabProcess, output: Path, *flags: str) -> tuple[int, int, float, float, float]:
    """The real program: how many waves and their lower bound, its estimate, what the run took, and
    its CPU.
    """
    cost = measured(
        lab, (sys.executable, "-m", "rollout", "apply", "--yes", "-o", "json", *flags), output
    )
    assert cost.code == 0, f"apply ended with {cost.code}: {output.read_text()[-3000:]}"
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    plan = next(line["plan"] for line in lines if line["type"] == "plan")
    acts = [line["at"] for line in lines if line["type"] in {"step", "node_finished", "summary"}]
    ran = time_of(acts[-1]) - time_of(acts[0])
    summary = plan["summary"]
    return (
        summary["waves"],
        summary["waves_lower_bound"],
        plan["estimate"]["seconds"],
        ran,
        cost.cpu,
    )


def time_of(stamp: str) -> float:
    """Seconds since the epoch."""
    return datetime.fromisoformat(stamp).timestamp()


def roll_by_hand(lab: LabProcess) -> list[str]:
    """Node after node, as somebody would who knows kubectl and has an evening."""
    names = run(lab, KUBECTL, "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").split()
    for name in names:
        run(
            lab,
            KUBECTL,
            *("drain", name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=600s"),
        )
        before = run(lab, KUBECTL, "get", "node", name, "-o", BOOT_OF)
        ssh(lab, name)
        while (
            now := run(lab, KUBECTL, "get", "node", name, "-o", BOOT_OF)
        ) == before or not now.endswith("True"):
            time.sleep(0.2)
        run(lab, KUBECTL, "uncordon", name)
    return names


def ssh(lab: LabProcess, name: str) -> None:
    """Ask a host to reboot; the connection may break before the answer."""
    address = run(
        lab, KUBECTL, "get", "node", name, "-o", "jsonpath={.status.addresses[0].address}"
    )
    options = ("-o", f"UserKnownHostsFile={lab.environment['ROLLOUT_KNOWN_HOSTS']}", "-F", "none")
    where = (
        "-p",
        lab.environment["ROLLOUT_SSH_PORT"],
        "-i",
        lab.environment["ROLLOUT_SSH_KEY"],
        f"core@{address}",
    )
    subprocess.run(
        ["ssh", *options, *where, "sudo systemctl reboot"],
        env=client_environment(lab),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )


def rollout(lab: LabProcess, *words: str) -> str:
    """What the real program prints, started in the lab's folder as its home."""
    return run(lab, sys.executable, "-m", "rollout", *words)


def run(lab: LabProcess, *words: str) -> str:
    """What a command prints; its end is the benchmark's where it fails."""
    environment = {**client_environment(lab), "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run(
        words, env=environment, cwd=lab.directory, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise SystemExit(
            f"{' '.join(words)} ended with {ended.returncode}:\n{ended.stderr[-3000:]}"
        )
    return ended.stdout


if __name__ == "__main__":
    main()
