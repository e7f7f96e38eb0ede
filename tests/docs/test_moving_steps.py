"""The steps of the page on moving, as an operator takes them: its commands pasted as they stand, in their order."""

import json
import os
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.defaulting import with_defaults
from rollout.lab.api.resources import DAEMONSETS, DEPLOYMENTS, LEASES, NAMESPACES, Resource
from rollout.lab.lab import Lab
from tests.conftest import StartLab
from tests.docs.test_moving import PAGE
from tests.ended import invoked

AGENT = "ghcr.io/flatcar/flatcar-linux-update-operator:v0.10"
FLEETLOCK = "quay.io/poseidon/fleetlock:v0.4.0"
# By the title of its section: what stands there as its system is installed, and a node that carries its marks.
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
    "a FleetLock server": ("default", ((DEPLOYMENTS, "fleetlock", FLEETLOCK),), "worker-7"),
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
# airlock's locks are in its etcd, for which a lab has no server.
ELSEWHERE = "ETCDCTL_API"
BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def blocks(title: str) -> list[str]:
    """What stands in this section to be pasted."""
    (section,) = [part for part in PAGE.split("\n## From ") if part.startswith(title)]
    return [block for block in BLOCK.findall(section) if ELSEWHERE not in block]


def workload(kind: str, name: str, image: str, namespace: str) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": image}]}}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec if kind == "DaemonSet" else {**spec, "replicas": 1},
    }


def install(lab: Lab, namespace: str, items: tuple[tuple[Resource, str, str], ...]) -> None:
    if not lab.store.get(NAMESPACES, namespace):
        lab.store.create(NAMESPACES, with_defaults(NAMESPACES, {"metadata": {"name": namespace}}))
    for kind, name, image in items:
        lab.store.create(kind, with_defaults(kind, workload(kind.kind, name, image, namespace)))


def names(lab: Lab, kind: Resource) -> set[str]:
    return {item["metadata"]["name"] for item in lab.call(lambda: list(lab.store.items(kind)))}


@pytest.mark.kubectl
@pytest.mark.parametrize("title", SYSTEMS)
def test_after_the_steps_as_they_are_printed_nothing_of_the_other_system_holds_its_node(
    title: str, start_lab: StartLab, tmp_path: Path
) -> None:
    lab, (namespace, items, node) = start_lab("leftovers"), SYSTEMS[title]
    lab.call(partial(install, lab, namespace, items))

    def planned() -> dict[str, Any]:
        return dict(json.loads(invoked(tmp_path, lab.environment, ("plan", "-o", "json")).stdout))

    def is_held(plan: dict[str, Any]) -> bool:
        return any(entry["node"] == node for entry in plan["excluded"])

    before = planned()
    assert is_held(before)
    assert bool(items) <= any(blocker["kind"] == "rival" for blocker in before["blockers"])
    cordons = next(block for block in BLOCK.findall(PAGE) if "kubectl uncordon NODE" in block)
    for block in (*blocks(title), cordons.replace("NODE", node)):
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **lab.environment}
        pasted = subprocess.run(
            ["bash", "-euc", block], env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert pasted.returncode == 0, (block, pasted.stderr)
    after = planned()
    assert not is_held(after)
    assert not any(blocker["kind"] == "rival" for blocker in after["blockers"])
    assert not {name for _kind, name, _image in items} & (names(lab, DEPLOYMENTS) | names(lab, DAEMONSETS))
    if title == "kured":
        assert "kured" not in names(lab, DAEMONSETS)
    if title == "a FleetLock server":
        assert "fleetlock-default" not in names(lab, LEASES)
