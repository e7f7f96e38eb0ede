"""The steps of the page on moving, as an operator takes them: its commands pasted as they stand, in their order."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from rollout.lab.api.defaulting import with_defaults
from rollout.lab.api.resources import DAEMONSETS, DEPLOYMENTS, LEASES, NAMESPACES, NODES, Resource
from rollout.lab.lab import Lab
from tests.cli.test_adopt import objects, set_running, workload
from tests.conftest import StartLab
from tests.docs.test_moving import PAGE
from tests.ended import Ended, end_of, start
from tests.waiting import wait_until

Run = Callable[..., Ended]
AGENT, OPERATOR = "ghcr.io/flatcar/flatcar-linux-update-operator:v0.10", "quay.io/poseidon/fleetlock:v0.4.0"
# By the title of its section: what stands there as its system is installed, and whose nodes carry its marks.
SYSTEMS: dict[str, tuple[str, tuple[tuple[Resource, str, str], ...], str]] = {
    "FLUO or CLUO": (
        "reboot-coordinator",
        (
            (DEPLOYMENTS, "flatcar-linux-update-operator", AGENT),
            (DAEMONSETS, "flatcar-linux-update-agent", AGENT),
        ),
        "worker-1",
    ),
    "kured": ("kube-system", (), "worker-3"),
    "a FleetLock server": ("default", ((DEPLOYMENTS, "fleetlock", OPERATOR),), "worker-7"),
    "the reboot manager": (
        "reboot-manager",
        ((DEPLOYMENTS, "reboot-manager", "ghcr.io/elastx/reboot-manager:1"),),
        "worker-5",
    ),
    "the CoreOS reboot operator": (
        "reboot-operator",
        (
            (DEPLOYMENTS, "reboot-controller", "quay.io/example/reboot-controller:1"),
            (DAEMONSETS, "reboot-agent", "quay.io/example/reboot-agent:1"),
        ),
        "worker-6",
    ),
}


def section(title: str) -> str:
    (text,) = [part for part in PAGE.split("\n## From ") if part.startswith(title)]
    return text


def commands(title: str) -> Iterator[str]:
    """What stands there in blocks to be pasted, a command each; what a lab has no server for is left out."""
    for block in re.findall(r"^ *```sh\n(.*?)^ *```", section(title), re.DOTALL | re.MULTILINE):
        for command in block.replace("\\\n", " ").splitlines():
            words = command.split()
            if words and ELSEWHERE not in words:
                yield " ".join(words)


ELSEWHERE = "etcdctl"


def install(lab: Lab, namespace: str, items: tuple[tuple[Resource, str, str], ...]) -> None:
    if not lab.store.get(NAMESPACES, namespace):
        lab.store.create(NAMESPACES, with_defaults(NAMESPACES, {"metadata": {"name": namespace}}))
    for kind, name, image in items:
        lab.store.create(kind, with_defaults(kind, workload(kind.kind, name, image, namespace)))


@pytest.fixture
def run(home: Path) -> Run:
    return lambda lab, *words: end_of(start(home, lab.environment, words))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.mark.kubectl
@pytest.mark.parametrize("title", SYSTEMS)
def test_each_step_works_as_it_is_printed_and_nothing_is_left(
    title: str, start_lab: StartLab, run: Run, home: Path
) -> None:
    lab, (namespace, items, node) = start_lab("leftovers"), SYSTEMS[title]
    lab.call(partial(install, lab, namespace, items))
    if title == "kured":
        lab.call(partial(set_running, lab, "kured"))
    refused = run(lab, "adopt", "--yes", "--node", node)
    assert refused.code == 6, "it still runs"
    pasted = list(commands(title))
    assert pasted, "there are commands to paste"
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **lab.environment}

    def paste(command: str) -> None:
        subprocess.run(command, shell=True, check=True, env=environment, capture_output=True, timeout=60)  # noqa: S602

    before = [command for command in pasted if is_of_a_stop(command)]
    for command in before:
        paste(command)
    wait_until(lambda: json.loads(run(lab, "adopt", "--dry-run", "-o", "json").stdout)["running"] == [])
    adopted = run(lab, "adopt", "--yes", "-o", "json")
    assert adopted.code == 0, adopted.stderr
    assert node in json.loads(adopted.stdout)["cleaned"]
    for command in pasted[len(before) :]:
        paste(command)
    for kind, name, _image in items:
        assert name not in objects(lab, kind)
    assert "kured" not in objects(lab, DAEMONSETS) or title != "kured"
    assert not [name for name in objects(lab, LEASES) if name.startswith("fleetlock-")]
    assert "Nothing to clean up." in run(lab, "adopt", "--yes").stdout
    left = lab.call(lambda: lab.store.get(NODES, node))
    assert left is not None
    assert "rival" not in {entry["reason"] for entry in json.loads(run(lab, "plan", "-o", "json").stdout)["excluded"]}


def is_of_a_stop(command: str) -> bool:
    """What stops the system; what removes its last objects comes after adopt."""
    words = command.split()
    workload = {"deployment", "daemonset"} & set(words)
    return "patch" in words or ("delete" in words and bool(workload) and "kured" not in words)
