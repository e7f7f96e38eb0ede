"""A standing process as Prometheus and a kubelet see it: scraped over HTTP, while it works and while it waits."""

import http.client
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rollout.lab.lab import Lab
from tests.apply.conftest import command
from tests.apply.scrapes import Scrape, complaints
from tests.ended import end_of

Start = Callable[[str, int], Lab]
LISTEN = ("--set", "metrics.listen=127.0.0.1:0")


def answer(port: int, path: str, host: str = "127.0.0.1", **headers: str) -> tuple[int, str, str]:
    """Status, body and kind of what is served there."""
    connection = http.client.HTTPConnection(host, port, timeout=20)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body, response.headers["Content-Type"]


def scrape(port: int) -> Scrape:
    status, body, kind = answer(port, "/metrics")
    assert status == 200
    assert kind.startswith("text/plain; version=")
    return Scrape(body)


def until(port: int, fits: Callable[[Scrape], bool], seconds: float = 60) -> Scrape:
    end = time.monotonic() + seconds
    while not fits(seen := scrape(port)):
        assert time.monotonic() < end, seen.text
        time.sleep(0.1)
    return seen


@contextmanager
def operating(lab: Lab, home: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A standing process and its port, which it has said."""
    process = command(lab, home, "operate", "--set", "waves.health-checks=1", *arguments)
    assert process.stderr is not None
    try:
        said = next(line for line in iter(process.stderr.readline, "") if line.startswith("metrics: "))
        port = re.fullmatch(r"metrics: http://\S+:(\d+)/metrics\n", said)
        assert port, said
        yield process, int(port[1])
    finally:
        process.kill()
        process.communicate()


def test_a_standing_process_is_scraped_while_it_works_and_while_it_waits(started: Start, tmp_path: Path) -> None:
    lab = started("default", 4)
    with operating(lab, tmp_path, "--every", "1h", *LISTEN) as (process, port):
        assert answer(port, "/healthz")[:2] == (200, "ok\n")
        working = until(port, lambda seen: seen.value("node_rollout_running") == 1)
        assert working.value("node_rollout_waves") == 4
        assert answer(port, "/readyz")[0] == 200
        waiting = until(port, lambda seen: bool(seen.values("node_rollout_last_pass_result")))
        assert complaints(waiting) == ""
        assert waiting.values("node_rollout_nodes", "phase") == {"done": 4}
        assert waiting.values("node_rollout_passes_total", "result") == {"ok": 1}
        assert waiting.value("process_resident_memory_bytes") > 1e6
        process.send_signal(signal.SIGTERM)
        assert end_of(process).code == 0


def test_a_process_that_cannot_read_the_cluster_is_healthy_and_not_ready(started: Start, tmp_path: Path) -> None:
    lab = started("no-rights", 4)
    with operating(lab, tmp_path, "--every", "1h", *LISTEN) as (_, port):
        until(port, lambda now: now.values("node_rollout_last_pass_result", "result") == {"error": 1})
        assert answer(port, "/healthz")[0] == 200
        assert answer(port, "/readyz") == (
            503,
            "not ready: see the log of the last pass\n",
            "text/plain; charset=utf-8",
        )
