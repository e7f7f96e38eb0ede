"""`rollout fleetlock zincati`: the file that hosts are given, as a TOML reader, a YAML reader and Zincati read it."""

import json
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urljoin

import pytest
import yaml

from rollout.errors import ExitCode
from tests.cli.conftest import Command
from tests.ended import end_of, start
from tests.waiting import wait_until

PATH = "/etc/zincati/config.d/55-rollout-fleetlock.toml"


def test_the_file_says_what_zincati_reads(command: Command) -> None:
    ended = command("fleetlock", "zincati", "--url", "https://10.96.0.15", "--group", "workers", "--wariness", "0.5")
    assert ended.code == ExitCode.OK, ended.stderr
    assert tomllib.loads(ended.stdout) == {
        "updates": {"enabled": True, "strategy": "fleet_lock", "fleet_lock": {"base_url": "https://10.96.0.15/"}},
        "identity": {"group": "workers", "rollout_wariness": 0.5},
    }
    assert ended.stdout.startswith(f"# {PATH}\n")
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://10.96.0.15", "http://10.96.0.15/v1/pre-reboot"),
        ("http://10.96.0.15/", "http://10.96.0.15/v1/pre-reboot"),
        ("https://lock.example:8443/base", "https://lock.example:8443/base/v1/pre-reboot"),
        ("http://[fd00::15]:8080/a/b", "http://[fd00::15]:8080/a/b/v1/pre-reboot"),
    ],
)
def test_the_last_part_of_a_path_is_not_lost(url: str, asked: str, command: Command) -> None:
    """Zincati joins as RFC 3986 has it."""
    base = tomllib.loads(command("fleetlock", "zincati", "--url", url).stdout)["updates"]["fleet_lock"]["base_url"]
    assert urljoin(base, "v1/pre-reboot") == asked


def test_butane_has_the_same_file(command: Command) -> None:
    arguments = ("fleetlock", "zincati", "--url", "https://10.96.0.15/", "--group", "workers")
    document = yaml.safe_load(command(*arguments, "--format", "butane").stdout)
    assert (document["variant"], document["version"]) == ("fcos", "1.5.0")
    (file,) = document["storage"]["files"]
    assert (file["path"], file["mode"]) == (PATH, 0o644)
    assert file["contents"]["inline"] == command(*arguments).stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "no --url"),
        (("--url", "10.96.0.15"), "is not the URL of a server"),
        (("--url", "ftp://10.96.0.15/"), "is not the URL of a server"),
        (("--url", "http:///v1"), "is not the URL of a server"),
        (("--url", "http://host:0/"), "is not the URL of a server"),
        (("--url", "http://host:99999/"), "is not a URL"),
        (("--url", "http://[fd00::/"), "is not a URL"),
        (("--url", 'http://host/"\nenabled = false'), "is not the URL of a server"),
        (("--url", "http://host/${group}/"), "is not the URL of a server"),
        (("--url", "http://me:hunter22@host/"), "--url has a user"),
        (("--url", "http://host/?a=b"), "--url has a user, a query"),
        (("--url", "http://host/", "--group", "two words"), "is not a group"),
        (("--url", "http://host/", "--group", ""), "is not a group"),
        (("--url", "http://host/", "--wariness", "1.5"), "--wariness"),
        (("--url", "http://host/", "--wariness", "nan"), "--wariness"),
        (("--url", "http://host/", "--format", "xml"), "--format"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], reason: str, command: Command) -> None:
    ended = command("fleetlock", "zincati", *arguments)
    assert (ended.code, ended.stdout) == (ExitCode.USAGE, "")
    assert reason in ended.stderr
    assert "hunter22" not in ended.stderr


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
