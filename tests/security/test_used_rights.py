"""The rights that `rollout manifests` prints are those that the program uses: each of them, and no other.

The attack: an account whose roles have grown beyond what it is for; and the mishap: a right that some option needs and
that nobody printed. The real program runs every command on a lab that judges by the printed roles; what it asked for
stands in the lab's log, and is compared with them both ways.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollout.adapters.kube.api import connect
from rollout.errors import ExitCode
from rollout.lab.api.access import Grant, grants_of
from rollout.lab.api.resources import CONFIGMAPS
from rollout.lab.api.store import Json
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.conftest import StartLab
from tests.ended import Ended, end_of, invoked, start
from tests.used_rights import single, unprinted, used

SCENARIO = Path(__file__).with_name("rights.yaml")
Run = Callable[..., Ended]
QUICK = ("--set", "lock.duration=3s")
GATES = (
    "--set",
    "drain.exclude-from-load-balancers=1s",
    "--set",
    "gates.blocking-pod-selector=app=nobody",
    "--strategy",
    "rolling",
)
COURTESY = (
    "--set",
    "labels.fluo=true",
    "--set",
    "labels.pre-reboot=a=b",
    "--set",
    "reboot.wait-for-users=1s",
    "--set",
    "reboot.wall=true",
)
# What reboots nothing. A pause of all nodes is written where the memory is.
QUIET = (
    *(("doctor",), ("status",), ("plan", "--explain", "worker-1"), ("inventory", "--list"), ("check-update",)),
    *(("pause", "worker-1"), ("unpause", "worker-1"), ("pause", "--all"), ("unpause", "--all")),
    *(("release", "--all"), ("status", "--run"), ("history",), ("resume", "--yes"), ("abort", "--yes")),
    ("known-hosts", "--out", "known_hosts", "--yes"),
    ("fleetlock", "status"),
)
# Of a FleetLock server that is gone: an abort frees it.
SLOT: Json = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "node-rollout-fleetlock", "namespace": "kube-system"},
    "data": {
        "slots.json": json.dumps(
            {
                "format_version": "1.0",
                "held": [
                    {"group": "default", "node": "worker-1", "node_uid": "u", "id": "i"}
                    | {"run": "fleetlock-1", "since": "2026-11-23T01:00:00Z", "boot_id": "b"}
                ],
            }
        )
    },
}


EVIDENCE = tuple(
    word
    for name, value in (("source", "configmap"), ("cluster", "staging"), ("allowed-signers", "signers"))
    for word in ("--set", f"evidence.{name}={value}")
)


def printed(run: Run, *arguments: str) -> tuple[Grant, ...]:
    ended = run("manifests", "roles", "-o", "json", *arguments)
    assert ended.code == ExitCode.OK, ended.stderr
    return grants_of(json.loads(ended.stdout)["items"])


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab(load_scenario(str(SCENARIO)), speed=30)


@pytest.fixture
def run(lab: Lab, tmp_path: Path) -> Run:
    return lambda *arguments: invoked(tmp_path, lab.environment, arguments)


def kill_once(lab: Lab, home: Path, phase: str, *arguments: str) -> None:
    """Start the program, and kill it once a node is in this phase."""
    process = start(home, lab.environment, arguments)
    assert process.stdout is not None
    for line in map(json.loads, process.stdout):
        if line.get("phase") == phase:
            break
    process.kill()
    process.communicate()


def assert_used_is_printed(lab: Lab, grants: tuple[Grant, ...]) -> None:
    acts = used(lab)
    assert [act for act in acts if not any(grant.covers(act) for grant in grants)] == []
    assert [right for right in single(grants) if not any(right.covers(act) for act in acts)] == []


def test_each_printed_right_is_used_and_no_other(lab: Lab, run: Run, tmp_path: Path) -> None:
    """Two rollouts, one of an operating process and one of a person, both killed: one is gone on with, one undone."""
    grants = printed(run)
    lab.call(lambda: setattr(lab.api.access, "grants", grants))
    for arguments in QUIET:
        ended = run(*arguments)
        assert ended.code == ExitCode.OK, (arguments, ended.stdout, ended.stderr)
    kill_once(lab, tmp_path, "draining", "operate", "--once", "-o", "json", *GATES, *COURTESY, *QUICK)
    assert run("operate", "--once", *QUICK).code == ExitCode.OK
    assert sum(lab.scoreboard().reboots.values()) == 4
    kill_once(lab, tmp_path, "draining", "apply", "--yes", "-o", "json", "--allow", "idle", *QUICK)
    assert run("status", "--run").code == ExitCode.OK
    watching = start(tmp_path, lab.environment, ("status", "--watch", "-o", "json"))
    assert watching.stdout is not None
    assert any("interrupted" in line for line in watching.stdout)
    lab.call(lambda: lab.store.create(CONFIGMAPS, SLOT))
    assert run("abort", "--yes", *QUICK).code == ExitCode.OK
    assert end_of(watching).code == ExitCode.OK
    assert run("status", *EVIDENCE).code == ExitCode.OK
    assert_used_is_printed(lab, grants)


def test_pods_are_deleted_only_where_that_was_asked_for(lab: Lab, run: Run) -> None:
    """With --disable-eviction the right to evict is another one."""
    plain, deleting = set(single(printed(run))), set(single(printed(run, "--disable-eviction")))
    assert {(grant.verbs, grant.resources) for grant in deleting - plain} == {(("delete",), ("pods",))}
    assert {(grant.verbs, grant.resources) for grant in plain - deleting} == {(("create",), ("pods/eviction",))}
    lab.call(lambda: setattr(lab.api.access, "grants", tuple(deleting)))
    ended = run("apply", "--yes", "--disable-eviction", "-o", "json", "--node", "worker-1")
    assert ended.code == ExitCode.OK, ended.stderr
    acts = used(lab)
    assert any((act.verb, act.resource) == ("delete", "pods") for act in acts)
    assert [act for act in acts if not any(grant.covers(act) for grant in deleting)] == []


def test_what_is_not_printed_is_found(lab: Lab) -> None:
    """By the look that every test takes at its lab when it is over."""
    api = connect(lab.kubeconfig, None)
    api.get("/api/v1/nodes")
    assert unprinted(lab) == []
    api.get("/api/v1/namespaces/kube-system/secrets")
    api.get("/apis/apps/v1/namespaces/shop/deployments/frontend")
    assert [(act.verb, act.resource) for act in unprinted(lab)] == [("list", "secrets"), ("get", "deployments")]
    lab.call(lab.requests.clear)


def test_what_doctor_asks_for_is_what_is_printed(lab: Lab, run: Run) -> None:
    """One source: each check of `doctor` is a printed right, and each printed right is checked."""
    grants = printed(run)
    lab.call(lambda: setattr(lab.api.access, "grants", grants))
    checks: list[dict[str, Any]] = json.loads(run("doctor", "-o", "json").stdout)["checks"]
    rights = [check for check in checks if check["check"] == "right"]
    assert {check["verdict"] for check in rights} == {"pass"}
    assert len(rights) == len(list(single(grants)))


@pytest.mark.exhaustive
def test_a_pod_of_operate_has_the_rights_that_it_uses_and_no_other(lab: Lab, run: Run, tmp_path: Path) -> None:
    """One that is killed, and the next, which goes on. What nobody failed by is not added to the memory."""
    (tmp_path / "known_hosts").write_text(lab.known_hosts.read_text())
    image = ("--image", "registry.example/node-rollout:1", "--known-hosts", "known_hosts")
    documents = json.loads(run("manifests", "cronjob", *image, "-o", "json").stdout)["items"]
    grants = grants_of(item for item in documents if item["kind"].endswith("Role"))
    lab.call(lambda: setattr(lab.api.access, "grants", grants))
    kill_once(lab, tmp_path, "draining", "operate", "--once", "-o", "json", *GATES, *COURTESY, *QUICK)
    assert run("operate", "--once", *QUICK).code == ExitCode.OK
    assert run("operate", "--once", *EVIDENCE).code == ExitCode.OK
    acts = used(lab)
    assert [act for act in acts if not any(grant.covers(act) for grant in grants)] == []
    (unused,) = (right for right in single(grants) if not any(right.covers(act) for act in acts))
    assert (unused.verbs, unused.resource_names) == (("update",), ("node-rollout-memory",))
