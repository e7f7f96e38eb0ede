"""What a command imports before its first request, which the user waits for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {token: none}}]
"""
FIRST_REQUEST = """\
import os, socket, sys
from rollout.cli.main import main

def connect(self, address):
    # In one step: another thread may connect, and end the process, at the same time.
    os.write(1, " ".join([*sys.modules, ""]).encode())
    os._exit(0)

socket.socket.connect = connect
sys.argv = ["rollout", *sys.argv[1:]]
main()
"""
STATUS = "import sys; import rollout.cli.stages.status; print(*sys.modules)"
# An eighth more than it is now, Python's own among them.
MOST_MODULES = 490
LATER = {
    *("paramiko", "cryptography", "rich", "asyncio", "rollout.adapters.notify"),
    *("rollout.execution.gates", "rollout.execution.node", "rollout.execution.rollout"),
    *("rollout.planning.plan.build", "rollout.planning.play"),
    *("rollout.report.plan_screen", "rollout.report.run_view"),
}


def printed(script: str, *words: str, **variables: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", script, *words],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout


def modules_of(script: str, *words: str, **variables: str) -> set[str]:
    return set(printed(script, *words, **variables).split())


@pytest.mark.parametrize(
    "line", ["status", "plan", "apply --yes", "resume --yes", "operate --once"]
)
def test_the_first_request_waits_for_few_modules(line: str, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    modules = modules_of(FIRST_REQUEST, *line.split(), KUBECONFIG=str(file), HOME=str(tmp_path))
    assert "rollout.adapters.kube.api" in modules
    assert modules & LATER == set()
    assert len(modules) <= MOST_MODULES


def test_status_does_not_load_what_builds_plans() -> None:
    modules = modules_of(STATUS)
    assert "rollout.planning.plan.build" not in modules


EXIT = """\
import atexit, gc, sys
from rollout.cli.entry import main

atexit.register(lambda: print(gc.get_freeze_count(), len(gc.get_objects())))
sys.argv = ["rollout", "--version"]
main()
"""


def test_the_exit_collects_no_garbage() -> None:
    """To look at all objects once more took 0.2 s of CPU after an apply."""
    frozen, others = map(int, printed(EXIT).splitlines()[-1].split())
    assert frozen > 10 * others
