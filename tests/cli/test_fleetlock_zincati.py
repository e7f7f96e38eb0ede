"""What hosts with Zincati are given, and that they ask then."""

import json
import re
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urljoin

import pytest

from tests.ended import end_of, start
from tests.waiting import wait_until


def test_the_documented_drop_in_says_what_zincati_reads() -> None:
    """The last part of its base URL is not lost: Zincati joins as RFC 3986 has it."""
    page = (Path(__file__).parents[2] / "docs" / "fleetlock.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(# /etc/zincati/config\.d/.*?)```", page, flags=re.DOTALL)
    written = tomllib.loads(text)
    assert written.keys() == {"updates", "identity"}
    base = written["updates"].pop("fleet_lock")["base_url"]
    assert written == {"updates": {"enabled": True, "strategy": "fleet_lock"}, "identity": {"group": "workers"}}
    assert urljoin(base, "v1/pre-reboot") == f"{base}v1/pre-reboot"


# `rollout lab up --fleetlock`: every host asks there, as Zincati does.


class Lock(ThreadingHTTPServer):
    """A FleetLock server that grants nothing and remembers who asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        super().__init__(("127.0.0.1", 0), Answer)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/lock/"


class Answer(BaseHTTPRequestHandler):
    server: Lock

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body["client_params"]["id"]))
        self.send_response(200 if self.path.endswith("steady-state") else 423)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def lock() -> Iterator[Lock]:
    with Lock() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("scenario", ["default", "zincati"])
def test_each_host_reports_and_asks(scenario: str, lock: Lock, tmp_path: Path) -> None:
    words = ("lab", "up", "--scenario", scenario, "--nodes", "3", "--speed", "50", "--fleetlock", lock.url)
    process = start(tmp_path, {}, words)
    try:
        wait_until(lambda: len({host for path, host in lock.asked if path == "/lock/v1/pre-reboot"}) == 3)
    finally:
        process.terminate()
        ended = end_of(process)
    assert ended.code == 0, ended.stderr
    assert f"Hosts ask {lock.url} before they reboot" in ended.stderr
    assert {path for path, _ in lock.asked} == {"/lock/v1/steady-state", "/lock/v1/pre-reboot"}
