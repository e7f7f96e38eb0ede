"""The page on moving here names what exists, and its example checks are objects that an API server
takes.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from rollout.lab.api.lifecycle import with_defaults
from rollout.lab.api.resources import DAEMONSETS, DEPLOYMENTS, LEASES, NAMESPACES, Resource
from rollout.lab.lab import Lab
from rollout.model.gates import HookPolicy
from tests.conftest import StartLab
from tests.docs import reference
from tests.docs.pages import DOCS
from tests.ended import invoked

PAGE = (DOCS / "moving.md").read_text(encoding="utf-8")


CHECKS = sorted((DOCS / "examples").glob("*-reboot-check.yaml"))


RELEASES = [f"1.{minor}" for minor in range(28, 37)]


def rows() -> Iterator[tuple[str, str]]:
    """What was there, and what is here, of every table."""
    for line in PAGE.splitlines():
        if line.startswith("| ") and not line.startswith(("| there", "| ---")):
            there, here = line.strip("| ").split(" | ")
            yield there, here


def flags(text: str) -> set[str]:
    return set(re.findall(r"(--[a-z][a-z-]*[a-z])(?![a-z-]|-\*)", text))


def test_every_flag_that_stands_on_our_side_exists() -> None:
    known = {
        name for _, option in reference.options() for name in (*option.opts, *option.secondary_opts)
    }
    ours = {flag for _, here in rows() for flag in flags(here)}
    assert len(ours) > 8
    assert ours <= known


def objects(check: Path) -> dict[str, dict[str, Any]]:
    return {item["kind"]: item for item in yaml.safe_load_all(check.read_text(encoding="utf-8"))}


@pytest.mark.sample(4)
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.stem)
def test_every_release_takes_the_example_checks(check: Path, release: str) -> None:
    for item in objects(check).values():
        kubernetes_validate.validate(item, release, strict=True)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.stem)
def test_an_example_check_runs_where_rollout_asks_and_may_do_no_more_than_answer(
    check: Path,
) -> None:
    when = check.stem.removesuffix("-check")
    item = objects(check)
    pod = item["DaemonSet"]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {HookPolicy().prefix + when: "true"}
    assert item["ClusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}
    ]
    assert pod["serviceAccountName"] == item["ServiceAccount"]["metadata"]["name"]
    assert f"--set gates.{when}-annotations=checks.example/{when}" in check.read_text(
        encoding="utf-8"
    )
    assert f"checks.example/{when}=true" in pod["initContainers"][-1]["args"]


# The steps of the page on moving, as an operator takes them: its commands pasted as they stand, in
# their order.


AGENT = "ghcr.io/flatcar/flatcar-linux-update-operator:v0.10"


FLEETLOCK = "quay.io/poseidon/fleetlock:v0.4.0"


# By the title of its section: what stands there as its system is installed, and a node that carries
# its marks.
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
    "the Kubernetes reboot manager": (
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
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": image}]},
    }
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


@pytest.mark.sample(2)
@pytest.mark.kubectl
@pytest.mark.parametrize("title", SYSTEMS)
def test_after_the_steps_as_they_are_printed_nothing_of_the_other_system_holds_its_node(
    title: str, start_lab: StartLab, tmp_path: Path
) -> None:
    lab = start_lab("leftovers")
    namespace, items, node = SYSTEMS[title]
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
            ["bash", "-euc", block],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert pasted.returncode == 0, (block, pasted.stderr)
    after = planned()
    assert not is_held(after)
    assert not any(blocker["kind"] == "rival" for blocker in after["blockers"])
    assert not {name for _kind, name, _image in items} & (
        names(lab, DEPLOYMENTS) | names(lab, DAEMONSETS)
    )
    if title == "kured":
        assert "kured" not in names(lab, DAEMONSETS)
    if title == "a FleetLock server":
        assert "fleetlock-default" not in names(lab, LEASES)
