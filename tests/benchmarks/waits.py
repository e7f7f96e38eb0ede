"""How late each wait of a rollout ends, after the event in the cluster that ends it.

The lab notes when a host is up, when its Node is Ready in the new boot, when pods are gone or ready
and volumes are detached. The program is a process of its own. A wait begins with the program's
step before it, so an event from before then does not count.

Run: python tests/benchmarks/waits.py [--nodes 5] [--speed 1] [--most 0.2]
     `--most` ends with 1 if a wait is later than that.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from rollout.lab.api.resources import NODES, PODS, VOLUMEATTACHMENTS
from rollout.lab.api.store import Change
from rollout.lab.hosts.machine import HostEvent, HostTimings
from rollout.lab.lab import Lab
from rollout.lab.objects import is_ready, node_name
from rollout.lab.scenario import load_scenario

SCENARIO = Path(__file__).with_suffix(".yaml")
# The event that ends each wait, by the step that follows the wait.
WAITS = {
    "drained": "pods of the drain are gone",
    "rebooting": "volumes are detached",
    "booted": "the host is up",
    "ready": "the Node is Ready",
    "done": "its own pods are ready",
    "next": "evicted pods are available",
}


@dataclass
class Events:
    """When each event last happened, in seconds since the epoch, by event and node."""

    last: dict[tuple[str, str], float] = field(default_factory=dict)

    def note(self, event: str, node: str) -> None:
        self.last[event, node] = time.time()

    def note_host(self, node: str, event: HostEvent) -> None:
        if event is HostEvent.UP:
            self.note("booted", node)

    def note_change(self, change: Change) -> None:
        obj = change.obj
        if change.resource is NODES and change.differs(is_ready) and is_ready(obj):
            self.note("ready", obj["metadata"]["name"])
        elif change.resource is VOLUMEATTACHMENTS and change.gone:
            self.note("rebooting", obj["spec"]["nodeName"])
        elif change.resource is PODS and change.gone:
            self.note("drained", node_name(obj))
        elif change.resource is PODS and change.differs(is_ready) and is_ready(obj):
            owner = obj["metadata"]["ownerReferences"][0]["kind"]
            self.note(*(("done", node_name(obj)) if owner == "DaemonSet" else ("next", "")))


@dataclass(frozen=True)
class Step:
    """A step that ends a wait, and the time of the one before it."""

    wait: str
    node: str
    at: float
    before: float


def steps(lines: Iterable[Mapping[str, Any]]) -> Iterator[Step]:
    """Each step that ends a wait; nodes may be on their way side by side."""
    last: dict[str, float] = {}
    for line in lines:
        at = datetime.fromisoformat(line["at"]).timestamp()
        word = line["phase"] if line["type"] == "step" and "edge" in line else line["type"]
        node = line.get("node", "")
        if word == "wave_started" and last:
            yield Step("next", "", at, max(last.values()))
        elif word in WAITS:
            yield Step(word, node, at, last.get(node, 0.0))
        if "edge" in line:
            last[node] = at


def late_waits(lines: Iterable[Mapping[str, Any]], events: Events) -> Mapping[str, Sequence[float]]:
    """Seconds after the event, by wait, as the lines come; without waits for nothing."""
    late = defaultdict[str, list[float]](list)
    for step in steps(lines):
        event = events.last.get((step.wait, step.node), 0.0)
        if event > step.before:
            late[step.wait].append(step.at - event)
    return late


def print_late_waits(late: Mapping[str, Sequence[float]]) -> None:
    """Print a row for each wait."""
    print(f"{'wait until':<30}{'waits':>6}{'median s':>10}{'most s':>8}")
    for wait, title in WAITS.items():
        figures = late.get(wait)
        if figures:
            print(f"{title:<30}{len(figures):>6}{median(figures):>10.2f}{max(figures):>8.2f}")


def lateness(lab: Lab, nodes: int) -> Mapping[str, Sequence[float]]:
    """Seconds after the event, by wait; without waits that had nothing to wait for."""
    events = Events()
    lab.call(lambda: lab.store.subscribe(events.note_change))
    for number, (name, machine) in enumerate(lab.machines.items()):
        # Each in another phase of a wait that polls.
        machine.timings = HostTimings(boot=20 + 1.7 * number)
        lab.call(partial(machine.observers.append, partial(events.note_host, name)))
    names = [f"--node=worker-{number}" for number in range(1, nodes + 1)]
    with subprocess.Popen(
        (sys.executable, "-m", "rollout", "apply", "--yes", "-o", "json", *names),
        env={"PATH": os.environ["PATH"], "HOME": str(lab.directory), **lab.environment},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        late = late_waits(map(json.loads, process.stdout), events)
    assert process.returncode == 0, f"apply ended with {process.returncode}"
    return late


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--most", type=float)
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-") as name,
        Lab(load_scenario(str(SCENARIO)), directory=Path(name), speed=asked.speed) as lab,
    ):
        late = lateness(lab, asked.nodes)
    print_late_waits(late)
    worst = max(max(figures) for figures in late.values() if figures)
    if asked.most is not None and worst > asked.most:
        sys.exit(f"a wait ended {worst:.2f} s late")


if __name__ == "__main__":
    main()
