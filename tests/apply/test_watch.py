"""`status --watch` beside a rollout in another process: killed and gone on with, undone, and without an API server.

The program is what an operator starts, on the lab's wire; each wait is for what the other process does, by the clock.
"""

import json
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import LEASES, NODES
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, command, is_ending
from tests.apply.test_resume import APPLY, holder_of, record, run_of
from tests.cli.screens import shown
from tests.waiting import wait_until

Start = Callable[[str, int], Lab]
SECONDS = 90.0
LEASE = ("--set", "lock.duration=3s")


class Heard:
    """The lines of a process, as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._coming: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._coming.put(line)
        self._coming.put(None)

    def until(self, wanted: Callable[[str], bool]) -> str:
        """The first line from here on that is wanted."""
        end = time.monotonic() + SECONDS
        while (line := self._coming.get(timeout=max(0.1, end - time.monotonic()))) is not None:
            self.lines.append(line)
            if wanted(line):
                return line
        raise AssertionError(f"it ended without the line: {self.lines[-20:]}")

    def rest(self) -> int:
        """Hear it to its end; its exit code."""
        end = time.monotonic() + SECONDS
        while (line := self._coming.get(timeout=max(0.1, end - time.monotonic()))) is not None:
            self.lines.append(line)
        return self.process.wait(timeout=SECONDS)

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


@contextmanager
def heard(lab: Lab, home: Path, *arguments: str) -> Iterator[Heard]:
    process = command(lab, home, *arguments)
    try:
        yield Heard(process)
    finally:
        process.kill()
        process.communicate()


def of_type(kind: str, **fields: str) -> Callable[[str], bool]:
    """Whether a line is an object of that type, with these fields."""

    def is_wanted(line: str) -> bool:
        told = json.loads(line)
        return bool(told["type"] == kind and all(word in str(told[name]) for name, word in fields.items()))

    return is_wanted


def test_a_rollout_is_watched_through_its_kill_and_its_resume(started: Start, rollout: Rollout, tmp_path: Path) -> None:
    lab = started("default", 6)
    process = command(lab, tmp_path, *APPLY, "--max-unavailable", "1", *LEASE)
    wait_until(lambda: record(lab) is not None, SECONDS)
    run = run_of(lab)
    with heard(lab, tmp_path, "status", "--watch", "-o", "json") as watching:
        watching.until(of_type("notice", message="running: "))
        watching.until(of_type("step", phase="draining"))
        process.kill()
        process.communicate()
        watching.until(of_type("notice", message="interrupted: no process is working on it"))
        assert rollout(lab, "resume", "--yes", *LEASE).code == 0
        assert watching.rest() == 0, watching.lines
        told = watching.objects
    assert told[0]["type"] == "version"
    (plan,) = (line["plan"] for line in told if line["type"] == "plan")
    assert plan["plan_id"] == run
    workers = {node["name"] for wave in plan["waves"] for node in wave["nodes"]}
    ends = [line["node"] for line in told if line["type"] == "node_finished"]
    assert sorted(ends) == sorted(workers)
    assert told[-1]["type"] == "summary"
    assert set(told[-1]["succeeded"]) == workers
    words = [line["message"].partition(":")[0] for line in told if line["type"] == "notice"]
    assert [word for word in words if word in ("running", "interrupted")] == ["running", "interrupted", "running"]
    waves = [line["index"] for line in told if line["type"] == "wave_started"]
    assert waves == sorted(set(waves))
    for node in workers:
        phases = [line["phase"] for line in told if line["type"] == "step" and line["node"] == node]
        assert "rebooting" in phases


def test_what_holds_a_drain_and_why_a_node_failed_is_seen_from_elsewhere(
    started: Start, rollout: Rollout, tmp_path: Path
) -> None:
    """The words are those of the process itself, but for what stands in no object."""
    lab = started("budget-never", 4)
    flags = ("--allow", "blocked", "--drain-timeout", "12s", "--max-failures", "9", *LEASE)
    with heard(lab, tmp_path, *APPLY, *flags) as applying:
        wait_until(lambda: record(lab) is not None, SECONDS)
        with heard(lab, tmp_path, "status", "--watch", "-o", "json") as watching:
            assert watching.rest() == 0
        assert applying.rest() == 4
    seen, told = watching.objects, applying.objects
    (hold, *_) = [line for line in seen if line["type"] == "blocked"]
    (own, *_) = [line for line in told if line["type"] == "blocked" and line["pod"] == hold["pod"]]
    assert {key: hold[key] for key in ("node", "pod", "budget", "needs", "has")} == {
        key: own[key] for key in ("node", "pod", "budget", "needs", "has")
    }
    assert 0 < hold["seconds_left"] <= 12
    assert [line for line in seen if line["type"] == "released" and line["pod"] == hold["pod"]]
    failed = {entry["node"]: entry for entry in told[-1]["failed"]}
    assert failed
    for entry in seen[-1]["failed"]:
        ends = failed.pop(entry["node"])
        assert {key: entry[key] for key in ("outcome", "phase", "message")} == {
            key: ends[key] for key in ("outcome", "phase", "message")
        }
    assert not failed
    assert seen[-1]["not_started"] == told[-1]["not_started"]
    later = rollout(lab, "status", "--watch")
    assert later.code == 0
    assert re.search(r"No rollout is running or interrupted\. Left over: the rollout \w+ .* has ended", later.stdout)


def state_of_last_run(rollout: Rollout, lab: Lab) -> str:
    """As `history` on the machine of the run has it, in JSON and in its table."""
    (*_, run) = json.loads(rollout(lab, "history", "-o", "json").stdout)
    assert rollout(lab, "history").stdout.rstrip().endswith(f"  {run['state']}")
    return str(run["state"])


def test_an_abort_is_how_it_ended(started: Start, rollout: Rollout, tmp_path: Path) -> None:
    lab = started("drain-hangs", 5)
    process = command(lab, tmp_path, *APPLY, *LEASE)
    wait_until(lambda: lab.call(lambda: is_ending(lab, "stubborn")), SECONDS)
    assert state_of_last_run(rollout, lab) == "running"
    process.kill()
    process.communicate()
    assert state_of_last_run(rollout, lab) == "interrupted"
    with heard(lab, tmp_path, "status", "--watch") as watching:
        watching.until(lambda line: "interrupted: no process is working on it" in line)
        assert rollout(lab, "abort", "--yes", *LEASE).code == 0
        assert watching.rest() == 0
    assert state_of_last_run(rollout, lab) == "aborted"
    assert re.match(r"Aborted by \S+: \d+ nodes? given back; \d+ nodes? succeeded", watching.lines[-1])
    assert any(re.search(r"\d\d:\d\d:\d\d worker-\d: given back, in ", line) for line in watching.lines)


def test_an_api_server_that_is_away_is_told_of_and_waited_for(started: Start, tmp_path: Path) -> None:
    """In a pipe: a line for each thing that changes, and none that says the same again."""
    lab = started("default", 5)
    with heard(lab, tmp_path, *APPLY, "--max-unavailable", "1") as applying:
        wait_until(lambda: record(lab) is not None, SECONDS)
        with heard(lab, tmp_path, "status", "--watch") as watching:
            watching.until(lambda line: ": draining" in line)
            # eight seconds of real time
            lab.inflict(ApiFault(answer=FaultAnswer.OUTAGE, duration=240))
            watching.until(lambda line: "the API server does not answer" in line)
            watching.until(lambda line: "running: " in line)
            assert watching.rest() == 0
        assert applying.rest() == 0
    text = "".join(watching.lines)
    assert "nodes succeeded" in watching.lines[-1]
    steps = re.findall(r"worker-\d: (?:draining|rebooting)\b", text)
    assert len(steps) == len(set(steps))


def test_where_there_is_none_it_says_so(started: Start, rollout: Rollout) -> None:
    lab = started("default", 3)
    said = rollout(lab, "status", "--watch")
    assert (said.code, said.stdout) == (0, "No rollout is running or interrupted.\n")
    as_json = rollout(lab, "status", "--watch", "-o", "json")
    assert (as_json.code, [line["type"] for line in as_json.lines]) == (0, ["version", "summary"])
    assert rollout(lab, "status", "--watch", "-o", "name").code == 64


def test_on_a_terminal_it_waits_for_one_to_begin_and_follows_it(
    started: Start, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)
    assert rollout(lab, *APPLY, "--node", "worker-1").code == 0
    run = run_of_last(lab)
    applying: list[subprocess.Popen[str]] = []

    def begin_one(lines: Sequence[str], _process: subprocess.Popen[bytes]) -> None:
        if not applying and "waiting for a rollout to begin: none is running" in " ".join(lines):
            applying.append(command(lab, tmp_path, *APPLY))

    screen = shown(tmp_path, lab.environment, ("status", "--watch"), 200, heed=begin_one)
    assert applying
    applying[0].communicate()
    assert (applying[0].returncode, screen.code) == (0, 0), screen.text
    assert re.search(rf"; the last was {run}, until \S+Z: 1 succeeded", screen.text)
    assert "Ctrl-C ends this view" in "\n".join(line for lines in screen.moments for line in lines)
    assert "2 nodes succeeded" in screen.text
    ended = rollout(lab, "status", "--watch")
    assert ended.code == 0
    assert re.fullmatch(
        r"No rollout is running or interrupted\. The last was [0-9a-f]{16}, until \S+Z: 2 succeeded\.\n", ended.stdout
    )


def test_ctrl_c_ends_the_waiting_for_one(started: Start, tmp_path: Path) -> None:
    lab = started("default", 3)
    sent = list[int]()

    def leave(lines: Sequence[str], process: subprocess.Popen[bytes]) -> None:
        if not sent and "waiting for a rollout to begin · Ctrl-C ends this view" in " ".join(lines):
            process.send_signal(signal.SIGINT)
            sent.append(process.pid)

    screen = shown(tmp_path, lab.environment, ("status", "--watch"), 80, heed=leave)
    assert (screen.code, len(sent)) == (130, 1)
    assert "waiting for a rollout to begin: none is running or interrupted" in " ".join(screen.text.split())


def run_of_last(lab: Lab) -> str:
    node = lab.call(lambda: lab.store.get(NODES, "worker-1"))
    assert node is not None
    return str(json.loads(node["metadata"]["annotations"]["node-rollout.dev/last-result"])["run"])


def test_ctrl_c_ends_the_view_and_not_the_rollout(started: Start, tmp_path: Path) -> None:
    lab = started("default", 4)
    with heard(lab, tmp_path, *APPLY) as applying:
        wait_until(lambda: record(lab) is not None, SECONDS)
        with heard(lab, tmp_path, "status", "--watch") as watching:
            watching.until(lambda line: "running: " in line)
            watching.process.send_signal(signal.SIGINT)
            assert watching.rest() == 130
        assert applying.rest() == 0
    assert len(applying.objects[-1]["succeeded"]) == 3


def held_by_one_that_hangs(lab: Lab, home: Path, *flags: str) -> subprocess.Popen[str]:
    """A rollout that has a node in hand, and takes long."""
    process = command(lab, home, *APPLY, *flags)
    wait_until(lambda: lab.call(lambda: is_ending(lab, "stubborn")), SECONDS)
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A home without the journals of what is started in the other, as on another machine."""
    home = tmp_path / "elsewhere"
    home.mkdir()
    return home


@pytest.mark.parametrize("last", ["its process is alive", "no process is working on it"])
def test_status_of_a_run_has_one_word_at_once_and_confirms_it(
    started: Start, tmp_path: Path, elsewhere: Path, last: str
) -> None:
    """The first lines come from one look at the lock; the last from having watched it, ten seconds later."""
    lab = started("drain-hangs", 5)
    process = held_by_one_that_hangs(lab, tmp_path)
    if last == "no process is working on it":
        kill(process)
    looking = command(lab, elsewhere, "status", "--run")
    assert looking.stdout is not None
    first = looking.stdout.readline()
    # of one that was killed elsewhere just now, its last sign is all that is known
    assert re.search(r" is (running|unfinished|interrupted)(, wave \d of \d)?: ", first)
    assert looking.poll() is None
    assert looking.stderr is not None
    rest = looking.stdout.read()
    assert re.search(
        r"\S+ renewed the lock \d+s ago(; it does so every 10s, or loses the lock after|, and lost it) 30s", rest
    )
    assert last in rest
    assert "watching up to 12s for" in looking.stderr.read()
    looking.communicate()
    assert looking.returncode == 0
    kill(process)


def test_of_a_process_that_has_ended_on_this_machine_nothing_is_watched(
    started: Start, rollout: Rollout, tmp_path: Path
) -> None:
    """Its journal and its id say so for certain: whoever looks is told at once, in every place where it is named."""
    lab = started("drain-hangs", 5)
    process = held_by_one_that_hangs(lab, tmp_path)
    holder = holder_of(lab)
    with heard(lab, tmp_path, "status", "--watch") as watching:
        watching.until(lambda line: "running: " in line)
        kill(process)
        watching.until(lambda line: "interrupted: no process is working on it: `rollout resume`" in line)
    seen = rollout(lab, "status", "--run")
    text = " ".join(seen.stdout.split())
    assert re.search(r" is interrupted, wave \d of \d: ", text)
    assert f"{holder} held the lock, and has ended: it was a process on this machine" in text
    assert "no process is working on it: `rollout resume` continues it" in text
    assert "watching" not in seen.stderr
    assert json.loads(rollout(lab, "status", "--run", "-o", "json").stdout)["state"] == "interrupted"
    assert re.search(r" is interrupted, wave \d of \d: ", rollout(lab, "status").stderr)
    assert rollout(lab, "history").stdout.rstrip().endswith("interrupted")
    assert holder_of(lab) == holder


@pytest.mark.parametrize("change", ["process", "machine", "living"])
def test_what_only_looks_like_a_dead_process_of_this_machine_is_none(
    started: Start, rollout: Rollout, tmp_path: Path, change: str
) -> None:
    """The same user, machine, process id and run in two containers are two processes; and one that lives is alive."""
    lab = started("drain-hangs", 5)
    process = held_by_one_that_hangs(lab, tmp_path)
    if change != "living":
        kill(process)

    def take_over() -> None:
        lease = lab.store.get(LEASES, "node-rollout", "kube-system")
        assert lease is not None
        spec, metadata = dict(lease["spec"]), dict(lease["metadata"])
        if change == "process":
            metadata["annotations"] = {**metadata["annotations"], "node-rollout.dev/process": "0123456789abcdef"}
        if change == "machine":
            spec["holderIdentity"] = f"root@elsewhere/{process.pid}"
        lab.store.put(LEASES, {**lease, "metadata": metadata, "spec": spec})

    lab.call(take_over)
    text = rollout(lab, "status", "--run").stdout
    assert "it was a process on this machine" not in text
    assert " renewed the lock " in text
    kill(process)
