import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from queue import Queue

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from rollout.lab.api.resources import NODES, PODS
from rollout.lab.api.store import Change
from rollout.lab.hosts.faults import HEALTHY, HostFaults, RebootFault
from rollout.lab.lab import Lab
from tests.conftest import StartLab
from tests.ended import Ended, invoked, start
from tests.published import assert_published
from tests.state import PREFIX
from tests.waiting import Inbox, received, wait_until

Rollout = Callable[..., Ended]
# What `started` is.
Started = Callable[..., Lab]


def command(lab: Lab, home: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the real program on a lab."""
    return start(home, lab.environment, arguments)


# One good look at the cluster is enough.
ONE_LOOK = ("--set", "waves.health-checks=1")
# The real program on a machine whose time of day is off by as many seconds as a file says, from one
# moment to the next.
STEPPED = """
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from rollout.adapters import clock

ahead = Path(sys.argv.pop(1))

def now(_clock):
    return datetime.now(UTC) + timedelta(seconds=float(ahead.read_text()))

clock.SystemClock.now = now
from rollout.cli.entry import main
main()
"""


def stepped(lab: Lab, home: Path, ahead: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start it there: by a clock that is as many seconds ahead as this file says."""
    return start(home, lab.environment, (str(ahead), *arguments), script=STEPPED)


def killed_at(lab: Lab, home: Path, phase: str, *arguments: str) -> str:
    """Kill a command at the moment at which the cluster sees a node of it in this phase; that node."""
    begun = Queue[subprocess.Popen[str]]()
    reached = list[str]()

    def seen(change: Change) -> None:
        marked = change.obj["metadata"].get("annotations", {}).get(f"{PREFIX}phase")
        if change.resource is NODES and marked == phase and not reached:
            begun.get().kill()
            reached.append(change.obj["metadata"]["name"])

    lab.call(lambda: lab.store.subscribe(seen))
    begun.put(process := command(lab, home, *arguments))
    process.communicate()
    lab.call(lambda: lab.store.unsubscribe(seen))
    (node,) = reached
    return node


def is_ending(lab: Lab, workload: str) -> bool:
    """Whether a pod of it is told to go; of one that never goes, its node's drain does not end
    either.
    """
    pods = [pod["metadata"] for pod in lab.store.items(PODS)]
    return any(pod["name"].startswith(workload) and "deletionTimestamp" in pod for pod in pods)


def lose_hosts(lab: Lab) -> None:
    """From now on no host comes back from a reboot."""
    for machine in lab.machines.values():
        machine.inflict(HostFaults(reboot=RebootFault.NEVER_RETURNS))


def await_down(lab: Lab) -> str:
    """The first host that is down, which stays so where hosts are lost."""
    wait_until(lambda: not all(machine.running for machine in lab.machines.values()), 90)
    return next(name for name, machine in lab.machines.items() if not machine.running)


def boot(lab: Lab, node: str) -> None:
    """Bring back what has gone down, and all that go down later."""
    machine = lab.machines[node]
    wait_until(lambda: not lab.call(lambda: machine.running))
    for other in lab.machines.values():
        lab.call(partial(other.inflict, HEALTHY))
    lab.call(machine.power_on)


@pytest.fixture
def started(start_lab: StartLab) -> Started:
    """Labs by scenario, or its name, and number of nodes."""
    return lambda scenario, nodes: start_lab(scenario, nodes=nodes)


@pytest.fixture
def rollout(tmp_path: Path) -> Rollout:
    """Run the real program to its end."""

    def run(lab: Lab, *arguments: str) -> Ended:
        return invoked(tmp_path, lab.environment, arguments)

    return run


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    """Receives notifications, each of which has to be what is published of them."""
    with received() as made:
        yield made
    for exchange in made.exchanges:
        assert exchange.headers["Content-Type"] == "application/json"
    for note in made.notes:
        assert_published("notification", note)


# Metrics as whoever scrapes them has them: read by Prometheus' own parser.


@dataclass(frozen=True)
class Scrape:
    """One moment's metrics; `text` is what was exposed."""

    text: str

    @cached_property
    def families(self) -> Mapping[str, Metric]:
        """By the name that TYPE has."""
        return {family.name: family for family in text_string_to_metric_families(self.text)}

    def values(self, name: str, label: str = "") -> dict[str, float]:
        """The samples of this name that are not 0, by the value of a label."""
        samples = [
            sample
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name
        ]
        return {sample.labels.get(label, ""): sample.value for sample in samples if sample.value}

    def value(self, name: str) -> float:
        """The one sample of this name; 0 where there is none."""
        return next(iter(self.values(name).values()), 0.0)


def complaints(scrape: Scrape) -> str:
    """What promtool has to say of the metrics; nothing where it is not installed."""
    tool = shutil.which("promtool")
    if tool is None:
        return ""
    ended = subprocess.run(
        [tool, "check", "metrics"], input=scrape.text, capture_output=True, text=True, check=False
    )
    return ended.stdout + ended.stderr
