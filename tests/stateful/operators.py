"""Operators who run the program, each on a machine that knows nothing, and what the program told
them.
"""

import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from os import kill

import msgspec

from rollout.lab.api.resources import CONFIGMAPS, LEASES, NODES
from rollout.lab.api.store import Json
from rollout.lab.lab import Lab
from tests.conftest import POOLS
from tests.crash.conftest import Machine
from tests.stateful.witness import PHASE, RUN, annotations

# Which holds every node up, for longer than anything may go unnoticed.
GATES = ((), ("--set", "gates.command=sleep 1.6"))
# Whether nodes that others have cordoned are rebooted as well, or count against the limit.
ALLOW_CORDONED = ("--allow", "cordoned")
CORDONS = (ALLOW_CORDONED, ())
# Without the soft taint, evicted pods move to nodes that still wait for their reboot.
TAINTS = ((), ("--set", "drain.prefer-no-schedule-taint=false"))
STOPS = (("--set", "waves.stop=finish"), ("--set", "waves.stop=revert"))
STRATEGIES = (("--strategy", "waves"), ("--strategy", "rolling"), ("--config", str(POOLS)))
# Real seconds: short where the lab's time is fast.
HASTE = (
    *("--drain-timeout", "4s", "--reboot-timeout", "3s", "--ready-timeout", "3s"),
    *("--settle-timeout", "3s"),
)
# Their conditions have to be gone at the end, too.
CONDITIONS = ("--set", "labels.conditions=true")
RULES = (
    *HASTE,
    *("--max-failures", "100%", "--control-plane", "exclude"),
    *CONDITIONS,
)


@dataclass(frozen=True)
class Told:
    """What a command has said: its exit code (negative: killed by that signal) and its lines.

    `failed_before` are nodes that some run had left failed when it began.
    """

    code: int
    text: str
    lines: tuple[Json, ...]
    failed_before: frozenset[str]

    @property
    def planned(self) -> frozenset[str]:
        plans = [line["plan"] for line in self.lines if line["type"] == "plan"]
        return frozenset(
            node["name"] for plan in plans for wave in plan["waves"] for node in wave["nodes"]
        )

    @property
    def taken_on(self) -> frozenset[str]:
        """Nodes that carried marks already when this command began."""
        waves = [
            wave for line in self.lines if line["type"] == "plan" for wave in line["plan"]["waves"]
        ]
        begun = (
            wave["nodes"] for wave in waves if wave["because"] == "started before the interruption"
        )
        return frozenset(node["name"] for nodes in begun for node in nodes)

    @property
    def summary(self) -> Json | None:
        return next((line for line in self.lines if line["type"] == "summary"), None)

    @property
    def ends(self) -> Mapping[str, Json]:
        return {line["node"]: line for line in self.lines if line["type"] == "node_finished"}


@dataclass
class Operators:
    """One command at a time; `start` takes whichever fits what stands on the cluster."""

    lab: Lab
    machine: Machine
    limit: int
    flags: tuple[str, ...] = ()
    process: ForkServerProcess | None = None
    command: str = ""
    told: list[Told] = field(default_factory=list)
    _number: int = 0
    _failed_before: frozenset[str] = frozenset()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.is_alive()

    def start(self, *, resuming: tuple[str, ...] = ()) -> None:
        """Apply where nothing is unfinished, else resume, with these flags."""
        if self.process is None:
            fresh = not stands(self.lab) or not (resuming or unfinished(self.lab))
            self.run_one("apply" if fresh else "resume", *(self._rules if fresh else resuming))

    def run_one(self, command: str, *flags: str) -> None:
        """Start a command, at once in possession of the lock."""
        held = held_by(self.lab)
        unlock = ("--force-unlock", held) if held and command in ("resume", "abort") else ()
        if held and not unlock:
            # the others have no such flag: as `kubectl delete lease`, for its holder is gone
            self.lab.call(lambda: self.lab.store.remove(LEASES, "node-rollout", "kube-system"))
        self._number = self.machine.next_number()
        self.command = command
        failed = (name for name, marks in marked(self.lab).items() if marks.get(PHASE) == "failed")
        self._failed_before = frozenset(failed)
        consent = () if command == "operate" else ("--yes",)
        arguments = (command, "-o", "json", *consent, *unlock, *flags)
        self.process = self.machine.start(self._number, arguments, self.lab.environment)

    @property
    def _rules(self) -> tuple[str, ...]:
        return (*RULES, "--max-unavailable", str(self.limit), *self.flags)

    def send(self, number: int) -> None:
        """A signal to the process, if it lives."""
        if self.process is not None and self.process.pid is not None and self.process.is_alive():
            with suppress(ProcessLookupError):  # it may end right now
                kill(self.process.pid, number)

    def ended(self, seconds: float = 0) -> Told | None:
        """What the command has told, once it has ended; None while it runs, or where there is none."""
        if self.process is None:
            return None
        self.process.join(seconds)
        if self.process.exitcode is None:
            return None
        written = self.machine.output(self._number)
        text = written.read_text() if written.exists() else ""
        whole = (line for line in text.splitlines() if line.startswith("{") and line.endswith("}"))
        lines = tuple(line for line in map(decoded, whole) if "type" in line)
        told = Told(self.process.exitcode, text, lines, self._failed_before)
        self.process = None
        self.told.append(told)
        return told

    def kill(self) -> Told | None:
        """kill -9."""
        self.send(signal.SIGKILL)
        return self.ended(10)


def decoded(line: str) -> Json:
    found: Json = msgspec.json.decode(line)
    return found


def stands(lab: Lab) -> bool:
    """Whether a rollout stands on the cluster that has to be gone on with."""
    return bool(marked(lab)) or _is_under_way(lab)


def unfinished(lab: Lab) -> bool:
    """Whether a rollout stands on the cluster of which more is left than failed nodes."""
    phases = {marks.get(PHASE) for marks in marked(lab).values()}
    return _is_under_way(lab) or bool(phases - {"failed"})


def _is_under_way(lab: Lab) -> bool:
    record = lab.call(lambda: lab.store.get(CONFIGMAPS, "node-rollout", "kube-system"))
    return record is not None and annotations(record).get("node-rollout.dev/ended") != "true"


def marked(lab: Lab) -> dict[str, Mapping[str, str]]:
    """Nodes with our marks."""
    nodes = lab.call(lambda: list(lab.store.items(NODES)))
    return {
        node["metadata"]["name"]: annotations(node) for node in nodes if RUN in annotations(node)
    }


def held_by(lab: Lab) -> str:
    """The run whose Lease is held."""
    lease = lab.call(lambda: lab.store.get(LEASES, "node-rollout", "kube-system"))
    return annotations(lease).get(RUN, "") if lease and lease["spec"].get("holderIdentity") else ""


def await_change(lab: Lab, wanted: str, seconds: float) -> None:
    """Return once a node carries this phase, or after real seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if any(marks.get("node-rollout.dev/phase") == wanted for marks in marked(lab).values()):
            return
        time.sleep(0.02)
