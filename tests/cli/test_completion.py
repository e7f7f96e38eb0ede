"""What a shell offers while a line is typed: names of this cluster and this machine, soon, or
nothing.
"""

import json
import os
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from rollout.adapters.kube.api import connect
from rollout.execution.record.memory import change_memory
from rollout.lab.lab import Lab
from rollout.model.marks import LAST_RESULT
from rollout.model.memory import VersionFailures
from tests import state
from tests.cli.conftest import TINY
from tests.conftest import StartLab
from tests.docs.pages import ROOT
from tests.ended import Ended, end_of, start

Complete = Callable[..., Ended]
RUN = "3f9a01c2d4e5b6a7"
WORKERS = ["worker-1", "worker-2", "worker-3"]


@pytest.fixture(scope="module")
def remembering(shared_lab: StartLab) -> Lab:
    """A cluster with a version that failed, and another that one node was rebooted into."""
    lab = shared_lab(TINY)
    failed = {"4081.2.1": VersionFailures(nodes=("worker-2",), at="2026-11-20T01:00:00Z")}
    change_memory(
        connect(lab.kubeconfig, None),
        "kube-system",
        lambda memory: replace(memory, versions=failed),
    )
    result = {"outcome": "succeeded", "version": "4152.2.0", "at": "2026-11-21T01:00:00Z"}
    state.write(lab, "worker-1", "annotations", **{LAST_RESULT: json.dumps(result)})
    return lab


@pytest.fixture
def complete(home: Path) -> Complete:
    """Ask the program what may follow these words, of which the last one is begun."""

    def ask(*words: str, lab: Lab | None = None, variables: dict[str, str] | None = None) -> Ended:
        typed = {"COMP_WORDS": " ".join(("rollout", *words)), "COMP_CWORD": str(len(words))}
        shell = {"_ROLLOUT_COMPLETE": "complete_bash", **typed}
        environment = {**(lab.environment if lab else {}), **shell, **(variables or {})}
        return end_of(start(home, environment, ()))

    return ask


def offered(ended: Ended) -> list[str]:
    assert ended.ends(0).stderr == ""
    return ended.stdout.split()


def assert_offered(ask: Callable[[], list[str]], names: Sequence[str]) -> None:
    """These names are offered in the end.

    Nothing is offered if the cluster takes more than two seconds to answer, as it may on a busy
    machine: then a user presses Tab again.
    """
    for _ in range(4):
        if (offer := ask()) or not names:
            assert offer == names
            return
    assert ask() == names


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("pause", "wor"), WORKERS),
        (("unpause", "node/worker-1", "node/"), ["node/worker-2", "node/worker-3"]),
        (("unpause", "node/worker-1,", "node/"), ["node/worker-2", "node/worker-3"]),
        (("plan", "--node", "worker-1,"), ["worker-1,worker-2", "worker-1,worker-3"]),
        (("apply", "--exclude", ""), WORKERS),
        (("plan", "--explain", "worker-3"), ["worker-3"]),
        (("fleetlock", "release", ""), WORKERS),
        (("release", "--node", ""), WORKERS),
        (("status", "worker-1", "work"), ["worker-2", "worker-3"]),
        (("plan", ""), WORKERS),
        (("release", ""), ["4081.2.1"]),
        (("evidence", "4"), ["4152.2.0"]),
        (("status", "--node", "nobody"), []),
    ],
    ids=" ".join,
)
def test_names_of_the_cluster_are_offered(
    words: Sequence[str], names: Sequence[str], complete: Complete, remembering: Lab
) -> None:
    assert_offered(lambda: offered(complete(*words, lab=remembering)), names)


def test_the_cluster_is_the_one_that_the_line_names(
    complete: Complete, remembering: Lab, home: Path
) -> None:
    settings = home / "cluster.toml"
    settings.write_text(f'[cluster]\nkubeconfig = "{remembering.kubeconfig}"\n', encoding="utf-8")

    def by_flag() -> list[str]:
        return offered(complete("pause", "--kubeconfig", str(remembering.kubeconfig), ""))

    def by_settings_file() -> list[str]:
        return offered(complete("pause", "-c", "~/cluster.toml", ""))

    def by_variable() -> list[str]:
        return offered(complete("pause", "", variables={"ROLLOUT_CONFIG": str(settings)}))

    assert_offered(by_flag, WORKERS)
    assert_offered(by_settings_file, WORKERS)
    assert_offered(by_variable, WORKERS)


@pytest.mark.parametrize("command", ["history", "report"])
def test_runs_of_this_machine_are_offered(command: str, complete: Complete, home: Path) -> None:
    runs = home / ".local" / "state" / "rollout" / "runs"
    runs.mkdir(parents=True)
    (runs / f"{RUN}.jsonl").touch()
    assert offered(complete(command, "3f")) == [RUN]
    assert offered(complete(command, "b")) == []


def test_runs_of_the_current_cluster_are_offered_first(complete: Complete, home: Path) -> None:
    runs = home / ".local" / "state" / "rollout" / "runs"
    runs.mkdir(parents=True)
    for age, (run, name) in enumerate((("a1", "test"), ("a2", "prod"), ("a3", "prod"))):
        line = {"type": "run", "run": run, "cluster": {"server": f"https://{name}.example"}}
        (runs / f"{run}.jsonl").write_text(json.dumps(line))
        os.utime(runs / f"{run}.jsonl", (1e9 - age,) * 2)
    context = {"name": "c", "context": {"cluster": "c"}}
    cluster = {"name": "c", "cluster": {"server": "https://prod.example"}}
    kubeconfig = home / "kubeconfig"
    kubeconfig.write_text(
        json.dumps({"current-context": "c", "contexts": [context], "clusters": [cluster]})
    )
    variables = {"KUBECONFIG": str(kubeconfig)}
    assert offered(complete("report", "a", variables=variables)) == ["a2", "a3", "a1"]


@pytest.mark.parametrize("command", [("lab", "up"), ("demo",)])
def test_scenarios_are_offered(command: Sequence[str], complete: Complete) -> None:
    assert offered(complete(*command, "--scenario", "never-r")) == ["never-returns"]


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The URL of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"https://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A folder with the plugin and its completion, which the shell that has this project installed
    would find.
    """
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "scripts"
    ]
    for name in ("kubectl-node_rollout", "kubectl_complete-node_rollout"):
        module, _, function = scripts[name].partition(":")
        script = tmp_path / name
        script.write_text(
            f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n", encoding="utf-8"
        )
        script.chmod(0o755)
    return tmp_path


@pytest.mark.kubectl
@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("rele",), ["release"]),
        (("plan", "--max-u"), ["--max-unavailable"]),
        (("pause", "worker-1", ""), ["worker-2", "worker-3"]),
        (("plan", "--out", ""), []),
    ],
    ids=" ".join,
)
def test_kubectl_completes_the_plugin(
    words: Sequence[str], names: Sequence[str], plugin: Path, home: Path, remembering: Lab
) -> None:
    """Nothing is offered for a file, whose names the shell then completes: directive 0."""
    environment = {
        "PATH": f"{plugin}:{os.environ['PATH']}",
        "HOME": str(home),
        **remembering.environment,
    }
    typed = ["kubectl", "__complete", "node-rollout", *words]

    def complete_in_kubectl() -> list[str]:
        ended = subprocess.run(typed, env=environment, capture_output=True, text=True, check=True)
        *offer, directive = ended.stdout.split()
        assert directive == ":0"
        return offer

    assert_offered(complete_in_kubectl, names)


def test_a_server_that_never_answers_is_not_waited_for(
    complete: Complete, remembering: Lab, silent_server: str, tmp_path: Path
) -> None:
    lab = connect(remembering.kubeconfig, None).server
    kubeconfig = tmp_path / "silent"
    kubeconfig.write_text(
        remembering.kubeconfig.read_text(encoding="utf-8").replace(lab, silent_server)
    )
    before = time.monotonic()
    assert offered(complete("pause", "", variables={"KUBECONFIG": str(kubeconfig)})) == []
    # two seconds, and what it takes to start on a busy machine; a request waits for 30
    assert time.monotonic() - before < 30


LOGIN = """
apiVersion: v1
kind: Config
current-context: lab
contexts: [{name: lab, context: {cluster: lab, user: lab}}]
clusters: [{name: lab, cluster: {server: "https://127.0.0.1:1"}}]
users:
- name: lab
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, command: PROGRAM, interactiveMode: IfAvailable}
"""


def test_a_login_that_speaks_to_the_terminal_is_not_heard(
    complete: Complete, tmp_path: Path
) -> None:
    program = tmp_path / "login"
    kubeconfig = tmp_path / "kubeconfig"
    program.write_text(
        f"#!/bin/sh\ntouch {tmp_path}/asked\necho 'open https://login.example' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    kubeconfig.write_text(LOGIN.replace("PROGRAM", str(program)), encoding="utf-8")
    assert offered(complete("pause", "", variables={"KUBECONFIG": str(kubeconfig)})) == []
    assert (tmp_path / "asked").exists()


@pytest.mark.parametrize(
    "variables", [{"KUBECONFIG": "/nowhere"}, {"ROLLOUT_CONFIG": "/nowhere"}, {}], ids=str
)
def test_what_is_missing_is_passed_over(variables: dict[str, str], complete: Complete) -> None:
    assert offered(complete("release", "", variables=variables)) == []


def test_no_setting_is_read_before_a_name_is_asked_for(complete: Complete) -> None:
    assert "--max-unavailable" in offered(
        complete("plan", "--max", variables={"ROLLOUT_CONFIG": "/nowhere"})
    )
