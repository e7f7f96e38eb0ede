"""The real program at the size from which it asks its hosts from several processes."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.cli.screens import shown
from tests.ended import Ended, end_of, start_cold

pytestmark = pytest.mark.exhaustive

HOSTS = 600
WORKER = b"rollout.adapters.ssh.worker"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    scenario = scale(load_scenario("default"), HOSTS)
    with Lab.start(scenario, directory=tmp_path_factory.mktemp("lab"), speed=20) as lab:
        yield lab


@contextmanager
def watched(process: subprocess.Popen[str]) -> Iterator[set[int]]:
    """The worker processes that it has had so far."""
    workers, over = set[int](), threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            workers.update(workers_of(process.pid))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield workers
    finally:
        over.set()
        looking.join()


def workers_of(parent: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words, status = (entry / "cmdline").read_bytes(), (entry / "stat").read_text()
            except OSError:
                continue
            if WORKER in words and int(status.rpartition(")")[2].split()[1]) == parent:
                yield int(entry.name)


def ended_with_workers(lab: Lab, home: Path, *arguments: str) -> Ended:
    process = start_cold(home, lab.environment, arguments)
    with watched(process) as workers:
        ended = end_of(process)
    assert ended.code == 0, ended.stderr
    assert len(workers) == min(2, len(os.sched_getaffinity(0))), ended.stderr
    return ended


@pytest.mark.timeout(300)
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is used by one process")
def test_every_command_asks_all_hosts_from_several_processes(lab: Lab, tmp_path: Path) -> None:
    rows = json.loads(ended_with_workers(lab, tmp_path, "status", "-o", "json").stdout)
    assert (len(rows), {row["error"] for row in rows}, {row["needs_reboot"] for row in rows}) == (HOSTS, {""}, {True})

    plan = json.loads(
        ended_with_workers(lab, tmp_path, "plan", "-o", "json", "--set", "ssh.probe-timeout=1m30s").stdout
    )
    assert (plan["summary"]["nodes"], plan["excluded"]) == (HOSTS, [])

    one = ("--max-unavailable", "1", "--exclude", "cp-*", "--exclude", "worker-[2-9]*", "--exclude", "worker-1?*")
    ended = end_of(start_cold(tmp_path, lab.environment, ("apply", "--yes", "-o", "json", *one)))
    assert (ended.code, ended.outcomes) == (0, {"worker-1": "succeeded"}), ended.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("columns", "most"), [(60, 230), (80, 180), (120, 140), (200, 130)])
def test_a_plan_of_large_waves_names_every_node_on_few_screens(
    columns: int, most: int, lab: Lab, tmp_path: Path
) -> None:
    """In a column beside seven others their names would take 540 lines of 120 columns."""
    screen = shown(tmp_path, lab.environment, ("plan", "--max-unavailable", "10%", "--allow", "idle"), columns)
    assert screen.code == 0, screen.text
    named = set(re.findall(r"(?:worker|cp)-\d+", screen.text.partition("Warnings:")[0]))
    assert len(named) == HOSTS
    assert max(map(len, screen.lines)) <= columns
    assert len(screen.lines) < most, len(screen.lines)


@pytest.mark.timeout(300)
def test_an_interrupt_leaves_no_worker(lab: Lab, tmp_path: Path) -> None:
    process = start_cold(tmp_path, lab.environment, ("status",))
    end = time.monotonic() + 60
    while not (workers := set(workers_of(process.pid))):
        assert time.monotonic() < end, "no worker has begun"
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert end_of(process).code == 130
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


@pytest.mark.timeout(300)
def test_under_a_limit_of_open_files_all_hosts_answer(lab: Lab, tmp_path: Path) -> None:
    """A hard one, as containers have it."""
    asked = f"{sys.executable} -m rollout status -o json --set ssh.probe-concurrency=500 --set ssh.probe-timeout=2m"
    ended = subprocess.run(
        ["bash", "-c", f"ulimit -n 256; exec {asked}"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(Path.cwd()), **lab.environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert ended.returncode == 0, ended.stderr
    rows = json.loads(ended.stdout)
    assert (len(rows), {row["error"] for row in rows}) == (HOSTS, {""})
    # the other tests of this module have some of them rebooted before it, or after it
    assert {row["needs_reboot"] for row in rows} <= {True, False}
    assert ended.stderr.count("72 hosts are asked at once, not as many as ssh.probe-concurrency allows") == 1
