"""Six real machines, updated by a script of kubectl and ssh, and by `rollout apply` at each limit.

The script is `by_hand.sh`. After a reboot it looks at the host and its Node every five seconds, as
such scripts do, or every second, which is more often than they do. The machines are containers that
really reboot, reached over real SSH. The API server, its controllers and its kubelets are the
lab's, at real speed, with the workloads of `machines.yaml`. Each run starts with a new cluster and
an update staged on each machine.

It prints:

* for each run: its seconds, `x` how many times as fast as the script's run before it (the first of
  `--pauses`), the most nodes that were unavailable at once, the evictions, the evictions of pods
  that had moved before, and the load of this computer, which slows everything down
* how many times as fast each limit is as each script, by their median seconds
* the median seconds of the start, of each step of a node, between two waves, and of the end
* how late each wait of the program ends, after the event in the cluster that ends it

Run as root: python tests/benchmarks/machines.py [--pauses 5,1] [--limits 1,2,6] [--rounds 1]
     [--boot 0] [--keep DIRECTORY]. `--pauses` are the seconds between two looks of the script.
     `--boot` makes each boot take that many seconds longer. `--keep` keeps the output of the runs.
     PYTHONPATH may name another checkout, whose program is measured instead.
"""

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TextIO

sys.path.insert(0, str(Path(__file__).parents[2]))

from rollout.lab.hostplan import plan_hosts
from rollout.lab.scenario import load_scenario
from tests.benchmarks.waits import Events, late_waits, print_late_waits
from tests.e2e.cluster import Cluster, cluster_of
from tests.e2e.image import USERS, shared_root
from tests.e2e.machines import STAGED_VERSION, Machines, free_place, missing, running_machines

SCENARIO = load_scenario(str(Path(__file__).with_suffix(".yaml")))
NAMES = [plan.name for plan in plan_hosts(SCENARIO)]
SCRIPT = Path(__file__).with_name("by_hand.sh")
BY_HAND = "by hand, "
LIMIT = "limit "
# The steps of a node, in their order; the script has some of them.
STEPS = ("cordoned", "draining", "drained", "rebooting", "booted", "ready", "done")


@dataclass(frozen=True)
class TimedStep:
    """A step of a node, and its time in seconds since the epoch."""

    at: float
    node: str
    step: str


@dataclass(frozen=True)
class Result:
    """What one run took and did."""

    seconds: float
    load: float
    away: int
    evictions: int
    twice: int
    parts: Mapping[str, Sequence[float]]
    late: Mapping[str, Sequence[float]]


def main() -> None:
    """Run all methods, round after round."""
    options = arguments()
    reason = missing()
    if reason:
        sys.exit(reason)
    scripts = [f"{BY_HAND}{pause} s" for pause in options.pauses.split(",")]
    limits = [f"{LIMIT}{limit}" for limit in options.limits.split(",")]
    figures = defaultdict[str, list[Result]](list)
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-") as name,
        free_place() as place,
        running_machines(NAMES, place, shared_root(), USERS, Path(name)) as machines,
    ):
        directory = options.keep.resolve() if options.keep else Path(name)
        print(f"{'':<13}{'s':>8}{'x':>7}{'away':>6}{'evict':>7}{'twice':>7}{'load':>7}", flush=True)
        for number in range(1, options.rounds + 1):
            for method in [*scripts, *limits]:
                folder = directory / f"{number}-{method.replace(' ', '-').replace(',', '')}"
                folder.mkdir(parents=True)
                result = measure(machines, method, options.boot, folder)
                figures[method].append(result)
                show(method, result, figures[scripts[0]][-1].seconds)
    show_medians(figures, scripts, limits)
    show_parts(figures)
    for method in limits:
        print(f"\n{method}")
        print_late_waits(merge(result.late for result in figures[method]))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pauses", default="5,1")
    parser.add_argument("--limits", default="1,2,6")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--boot", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    return parser.parse_args()


def measure(machines: Machines, method: str, boot: int, folder: Path) -> Result:
    """Run one method on a new cluster, whose machines have an update staged."""
    boots = {machine.name: machine.booted for machine in machines}
    for machine in machines:
        machine.restore()
        if boot:
            machine.write("next-boot-takes", str(boot))
    with cluster_of(machines, folder, scenario=SCENARIO, speed=1) as cluster:
        events = Events()
        cluster.subscribe(events.note_change)
        for host in cluster.hosts:
            host.observers.append(partial(events.note_host, host.name))
        began = time.time()
        timed_steps, late = roll(method, environment(cluster, machines, folder), folder, events)
        ended = time.time()
        seen = cluster.scoreboard()
    assert seen.reboots == dict.fromkeys(NAMES, 1), seen.reboots
    assert all(machine.booted not in ("", boots[machine.name]) for machine in machines)
    assert not seen.budgets_broken, "a budget was broken"
    limit = 1 if method.startswith(BY_HAND) else int(method.removeprefix(LIMIT))
    assert seen.most_unavailable <= limit, "too many nodes were unavailable"
    return Result(
        seconds=ended - began,
        load=os.getloadavg()[0],
        away=seen.most_unavailable,
        evictions=seen.evictions,
        twice=seen.moved_twice,
        parts=measure_parts(timed_steps, began, ended),
        late=late,
    )


def environment(cluster: Cluster, machines: Machines, folder: Path) -> Mapping[str, str]:
    """Return the variables of both methods, which log in with the same key and known hosts."""
    known_hosts = folder / "known_hosts"
    known_hosts.write_text("".join(f"{each.address} {each.host_key}\n" for each in machines))
    config = folder / "ssh_config"
    hosts = "".join(f"Host {each.name}\n  HostName {each.address}\n" for each in machines)
    login = f"  User core\n  IdentityFile {machines.key}\n  UserKnownHostsFile {known_hosts}\n"
    config.write_text(f"{hosts}Host *\n{login}")
    programs = sysconfig.get_path("scripts")
    return {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PYTHONPATH": os.environ.get("PYTHONPATH", str(Path(__file__).parents[2])),
        "KUBECONFIG": str(cluster.kubeconfig),
        "SSH_CONFIG": str(config),
        "VERSION": STAGED_VERSION,
        "ROLLOUT_SSH_USER": "core",
        "ROLLOUT_SSH_KEY": str(machines.key),
        "ROLLOUT_KNOWN_HOSTS": str(known_hosts),
    }


def roll(
    method: str, variables: Mapping[str, str], folder: Path, events: Events
) -> tuple[Sequence[TimedStep], Mapping[str, Sequence[float]]]:
    """Run one method; return its steps and how late its waits ended. The folder gets its output."""
    is_script = method.startswith(BY_HAND)
    if is_script:
        command = [str(SCRIPT)]
        pause = method.removeprefix(BY_HAND).removesuffix(" s")
        variables = {**variables, "PAUSE": pause}
    else:
        limit = method.removeprefix(LIMIT)
        program = [sys.executable, "-m", "rollout", "apply", "--yes", "-o", "json"]
        command = [*program, "--max-unavailable", limit]
    with (
        (folder / "errors").open("w", encoding="utf-8") as errors,
        (folder / "output").open("w", encoding="utf-8") as output,
        subprocess.Popen(
            command,
            env=variables,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        printed = write_lines(process.stdout, output)
        late: Mapping[str, Sequence[float]] = {}
        if is_script:
            timed_steps = [script_step(line) for line in printed]
        else:
            lines: list[Mapping[str, Any]] = []
            late = late_waits(keep_lines(map(json.loads, printed), lines), events)
            timed_steps = list(program_steps(lines))
    assert process.returncode == 0, f"{method}: {(folder / 'errors').read_text()[-3000:]}"
    return timed_steps, late


def write_lines(lines: Iterable[str], output: TextIO) -> Iterator[str]:
    """Write each line as it is read."""
    for line in lines:
        output.write(line)
        yield line


def keep_lines(
    lines: Iterable[Mapping[str, Any]], into: list[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """Append each line as it is read."""
    for line in lines:
        into.append(line)
        yield line


def script_step(line: str) -> TimedStep:
    at, node, step = line.split()
    return TimedStep(float(at), node, step)


def program_steps(lines: Iterable[Mapping[str, Any]]) -> Iterator[TimedStep]:
    """Yield the steps of all nodes; a node starts with its wave."""
    wave = 0.0
    started = set[str]()
    for line in lines:
        at = datetime.fromisoformat(line["at"]).timestamp()
        if line["type"] == "wave_started":
            wave = at
        elif line["type"] == "step" and "edge" in line:
            node = line["node"]
            if node not in started:
                started.add(node)
                yield TimedStep(wave, node, "started")
            yield TimedStep(at, node, line["phase"])


def measure_parts(
    timed_steps: Sequence[TimedStep], began: float, ended: float
) -> Mapping[str, Sequence[float]]:
    """Return the seconds of the start, of each step, between two waves, and of the end."""
    parts = defaultdict[str, list[float]](list)
    last: dict[str, float] = {}
    started = 0.0
    for timed in sorted(timed_steps, key=lambda timed: timed.at):
        if timed.step in STEPS:
            parts[timed.step].append(timed.at - last[timed.node])
        elif timed.step == "started" and timed.at > started:
            # The nodes of a wave start together.
            started = timed.at
            earlier = ("between", max(last.values())) if last else ("start", began)
            parts[earlier[0]].append(started - earlier[1])
        last[timed.node] = timed.at
    parts["end"].append(ended - max(last.values()))
    return parts


def merge(figures: Iterable[Mapping[str, Sequence[float]]]) -> Mapping[str, Sequence[float]]:
    """Join the figures of several runs."""
    together = defaultdict[str, list[float]](list)
    for each in figures:
        for name, seconds in each.items():
            together[name].extend(seconds)
    return together


def show(method: str, result: Result, base: float) -> None:
    print(
        f"{method:<13}{result.seconds:>8.1f}{base / result.seconds:>7.2f}{result.away:>6}"
        f"{result.evictions:>7}{result.twice:>7}{result.load:>7.1f}",
        flush=True,
    )


def show_medians(
    figures: Mapping[str, Sequence[Result]], scripts: Sequence[str], limits: Sequence[str]
) -> None:
    seconds = {
        method: median(result.seconds for result in results) for method, results in figures.items()
    }
    print(f"\n{'medians':<13}{''.join(f'{limit:>10}' for limit in limits)}")
    for script in scripts:
        cells = "".join(f"{seconds[script] / seconds[limit]:>10.2f}" for limit in limits)
        print(f"{script:<13}{cells}")


def show_parts(figures: Mapping[str, Sequence[Result]]) -> None:
    titles = ("start", *STEPS, "between", "end")
    print(f"\n{'until':<13}{''.join(f'{title:>10}' for title in titles)}")
    for method, results in figures.items():
        parts = merge(result.parts for result in results)
        cells = (f"{median(parts[title]):.2f}" if parts.get(title) else "" for title in titles)
        print(f"{method:<13}{''.join(f'{cell:>10}' for cell in cells)}")


if __name__ == "__main__":
    main()
