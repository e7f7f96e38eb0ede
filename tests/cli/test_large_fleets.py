"""The real program at the size from which it asks its hosts from several processes."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.ended import Ended, end_of, invoked, start

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
    process = start(home, lab.environment, arguments)
    with watched(process) as workers:
        ended = end_of(process)
    assert ended.code == 0, ended.stderr
    assert len(workers) == min(2, len(os.sched_getaffinity(0))), ended.stderr
    return ended


@pytest.mark.timeout(300)
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is used by one process")
def test_every_command_asks_all_hosts_from_several_processes(lab: Lab, tmp_path: Path) -> None:
    rows = json.loads(ended_with_workers(lab, tmp_path, "status", "-o", "json").stdout)["nodes"]
    assert (len(rows), {row["error"] for row in rows}, {row["needs_reboot"] for row in rows}) == (HOSTS, {""}, {True})

    plan = json.loads(
        ended_with_workers(lab, tmp_path, "plan", "-o", "json", "--set", "ssh.probe-timeout=1m30s").stdout
    )
    assert (plan["summary"]["nodes"], plan["excluded"]) == (HOSTS, [])

    one = ("--max-unavailable", "1", "--exclude", "cp-*", "--exclude", "worker-[2-9]*", "--exclude", "worker-1?*")
    ended = invoked(tmp_path, lab.environment, ("apply", "--yes", "-o", "json", *one))
    assert (ended.code, ended.outcomes) == (0, {"worker-1": "succeeded"}), ended.stderr


@pytest.mark.timeout(300)
def test_an_interrupt_leaves_no_worker(lab: Lab, tmp_path: Path) -> None:
    process = start(tmp_path, lab.environment, ("status",))
    end = time.monotonic() + 60
    while not (workers := set(workers_of(process.pid))):
        assert time.monotonic() < end, "no worker has begun"
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert end_of(process).code == 130
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
