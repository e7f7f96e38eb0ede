"""A program that logs in and does not answer: it costs the wait for it once, and never a night."""

import json
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from rollout.adapters.kube.api import connect
from rollout.errors import KubeconfigError
from tests.adapters.test_kube_config import Json, authorization, program
from tests.scripted_api import Kubeconfig, scripted

LIMIT = 2.0


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout.adapters.kube.client_parts.LOGIN_LIMIT", LIMIT)


def hanging(tmp_path: Path, after: int) -> tuple[Json, Path]:
    """A program whose tokens have run out as soon as they are given, and which hangs after so many; and its runs."""
    runs = tmp_path / "runs"
    body = f"""
import json, os, pathlib, subprocess
runs = pathlib.Path({str(runs)!r})
before = runs.read_text().split() if runs.exists() else []
child = subprocess.Popen(["sleep", "600"]) if len(before) >= {after} else None
runs.write_text(" ".join([*before, str(child.pid if child else 0)]))
child and child.wait()
status = {{"token": "t", "expirationTimestamp": "2020-01-01T00:00:00Z"}}
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}}))
"""
    return program(tmp_path, body), runs


def is_running(number: int) -> bool:
    with suppress(ProcessLookupError, FileNotFoundError):
        os.kill(number, 0)
        return Path(f"/proc/{number}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_login_that_hangs_is_ended_and_told(tmp_path: Path) -> None:
    user, runs = hanging(tmp_path, after=0)
    with scripted(authorization) as server, pytest.raises(KubeconfigError, match="no answer within 2s"):
        connect(Kubeconfig(server.url, user=user).write(tmp_path / "kubeconfig"), None)
    until = time.monotonic() + 60
    while is_running(int(runs.read_text())) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(int(runs.read_text())), "what it has started goes on"


@pytest.mark.exhaustive
def test_one_that_hangs_in_the_middle_of_a_run_delays_a_request_and_no_more(tmp_path: Path) -> None:
    """The credentials may well be good for longer than their time; where they are not, the server says so."""
    user, runs = hanging(tmp_path, after=1)
    with scripted(authorization) as server:
        api = connect(Kubeconfig(server.url, user=user).write(tmp_path / "kubeconfig"), None)
        begun = time.monotonic()
        for _ in range(5):
            assert json.loads(api.get("/x")) == {"authorization": "Bearer t"}
        assert time.monotonic() - begun < 60
    assert len(runs.read_text().split()) == 2, "it is waited for again by every request"
