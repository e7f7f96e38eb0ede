"""The roles that are printed are enough, and no right of them is wider than what is used.

The attack: whoever gets hold of the program's account may do what its roles allow. A cluster-wide
right to write ConfigMaps is a way to cluster-admin. The rule: the Lease and the ConfigMap are
written in one namespace and by name, Events in `default`; access reviews ask for just that, so that
rights limited to it are found sufficient, and each that is missing is named before anything is
touched. Played by the lab's API server, which judges by the very roles.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollout.adapters.kube.api import connect
from rollout.errors import ExitCode
from rollout.execution.events import EVENT_OF_PHASE
from rollout.gather.cluster.rights import Right, apply_rights, has_right, missing_rights
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.lifecycle import with_defaults
from rollout.lab.api.resources import CONFIGMAPS, EVENTS, NAMESPACES, PODS
from rollout.lab.api.store import Json
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from rollout.manifests.objects import Installation, InstallationKind, roles
from rollout.model.marks import MEMORY_NAME
from rollout.model.progress import Phase
from tests.apply.conftest import killed_at
from tests.conftest import StartLab
from tests.ended import Ended, end_of, invoked, start
from tests.server.conftest import Client, serving
from tests.used_rights import Grant, grants_of, single, used
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


TINY = str(ROOT / "tests" / "cli" / "tiny.yaml")


Run = Callable[..., Ended]


def printed() -> tuple[dict[str, Any], ...]:
    return roles(Installation(kind=InstallationKind.ROLES))


def grant(lab: Lab, grants: Iterable[Grant]) -> None:
    lab.call(lambda: setattr(lab.api.access, "grants", tuple(each.covers for each in grants)))


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    lab = start_lab(load_scenario(TINY))
    grant(lab, grants_of(printed()))
    return lab


@pytest.fixture
def run(lab: Lab, tmp_path: Path) -> Run:
    return lambda *arguments: invoked(tmp_path, lab.environment, arguments)


def test_no_rule_of_them_writes_everywhere() -> None:
    (cluster_role,) = (role for role in printed() if role["kind"] == "ClusterRole")
    writing = {"create", "update", "patch", "delete"}
    wide = {
        res
        for rule in cluster_role["rules"]
        if writing & {*rule["verbs"]}
        for res in rule["resources"]
    }
    assert wide == {"nodes", "pods/eviction"}
    for role in (role for role in printed() if role["kind"] == "Role"):
        for rule in role["rules"]:
            named = rule.get("resourceNames") in (
                ["node-rollout"],
                ["node-rollout-memory"],
                ["node-rollout-fleetlock"],
            )
            read = (rule.get("resourceNames"), rule["verbs"]) == (
                ["node-rollout-evidence"],
                ["get"],
            )
            assert named or read or rule["verbs"] == ["create"] or rule["resources"] == ["events"]


SCENARIO = Path(__file__).with_name("rights.yaml")


GATES = (
    *("--set", "drain.exclude-from-load-balancers=100ms"),
    *("--set", "gates.blocking-pod-selector=app=nobody"),
)


QUICK_LOCK = ("--set", "lock.duration=3s", "--set", "waves.health-checks=1")


QUICK = (*QUICK_LOCK, "--max-failures", "3", "--drain-timeout", "15s")


# An Event that another process has told before is counted up.
TOLD_AGAIN = ("patch", "events")


def reasons(lab: Lab, node: str) -> set[str]:
    """Of the Events that tell of this node."""
    events = lab.call(lambda: lab.store.items(EVENTS))
    return {event["reason"] for event in events if event["involvedObject"]["name"] == node}


def is_remembered(lab: Lab, node: str) -> bool:
    """Whether its failure is."""
    memory = lab.call(lambda: lab.store.get(CONFIGMAPS, MEMORY_NAME, "kube-system"))
    return memory is not None and node in json.dumps(memory["data"])


@pytest.mark.exhaustive
def test_each_right_that_is_printed_is_used_and_no_other(
    start_lab: StartLab, tmp_path: Path
) -> None:
    """One host reboots; two nodes cannot be drained: the first failure makes the memory, the next adds to it.

    In the drain of the first a server dies, and the next one tells of it anew.
    """
    lab = start_lab(load_scenario(str(SCENARIO)))
    grants = printed_grants(
        lambda *words: invoked(tmp_path, lab.environment, words), "fleetlock", *IMAGE
    )
    grant(lab, grants)
    first, second, third = (Client(lab, f"worker-{number}") for number in (1, 2, 3))
    lab.call(lambda: put_storage(lab, "worker-1"))
    with serving(lab, tmp_path, *QUICK, *GATES) as server:
        first.await_grant(server, 90)
        first.reboot()
        first.await_return(server, 90)
        lab.inflict(
            ApiFault(answer=FaultAnswer.TOO_MANY_REQUESTS, verb="create", resource="pods/eviction")
        )
        second.await_drain(server)
        wait_until(lambda: EVENT_OF_PHASE[Phase.DRAINING][0] in reasons(lab, "worker-2"), 90)
    with serving(lab, tmp_path, *QUICK, *GATES) as server:
        wait_until(lambda: TOLD_AGAIN in {(act.verb, act.resource) for act in used(lab)}, 90)
        for client in (second, third):
            client.await_drain(server)
            wait_until(lambda client=client: is_remembered(lab, client.node), 90)  # type: ignore[misc]
        assert server.end() == 0
    assert_used_is_printed(lab, grants)


# The rights that `rollout manifests` prints are those that the program uses: each of them, and no
# other.


COURTESY = ("--set", "labels.fluo=true")


# What reboots nothing. A pause of all nodes is written where the memory is.
QUIET = (
    ("doctor",),
    ("status",),
    ("plan", "--explain", "worker-1"),
    ("plan", "--set", "drain.wait-for-completion=job-name"),
    ("inventory", "--list"),
    ("check-update",),
    *(("pause", "worker-1"), ("unpause", "worker-1"), ("pause", "--all"), ("unpause", "--all")),
    ("release", "--all"),
    ("status", "--run"),
    ("history",),
    ("resume", "--yes"),
    ("abort", "--yes"),
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
    for name, value in (
        ("source", "configmap"),
        ("cluster", "staging"),
        ("allowed-signers", "signers"),
    )
    for word in ("--set", f"evidence.{name}={value}")
)


IMAGE = ("--image", "registry.example/node-rollout:1")


def printed_grants(run_there: Run, kind: str = "roles", *arguments: str) -> tuple[Grant, ...]:
    ended = run_there("manifests", kind, "-o", "json", *arguments).ends(ExitCode.OK)
    return grants_of(
        item for item in json.loads(ended.stdout)["items"] if item["kind"].endswith("Role")
    )


@pytest.fixture
def quiet_lab(start_lab: StartLab) -> Lab:
    """Three nodes: what is begun last waits until all has settled from those before."""
    scenario = load_scenario(str(SCENARIO))
    (workers,) = scenario.nodes
    return start_lab(
        msgspec.structs.replace(scenario, nodes=(msgspec.structs.replace(workers, count=3),))
    )


@pytest.fixture
def run_there(quiet_lab: Lab, tmp_path: Path) -> Run:
    return lambda *arguments: invoked(tmp_path, quiet_lab.environment, arguments)


def kill_a_pass_and_finish_it(lab: Lab, home: Path, run_there: Run) -> None:
    """Kill an operating process once a node is being drained; the next one goes on with what it
    left.
    """
    rules = (*GATES, "--strategy", "rolling", *COURTESY, *QUICK_LOCK)
    killed_at(lab, home, "draining", "operate", "--once", "-o", "json", *rules)
    run_there("operate", "--once", *QUICK_LOCK).ends(ExitCode.OK)


# Pods by which the program sees that there is something to ask of Longhorn and Ceph, and their
# owners.
STORAGE: Mapping[str, Json] = {
    "longhorn-manager": {
        "apiVersion": "longhorn.io/v1beta2",
        "kind": "InstanceManager",
        "name": "m",
        "uid": "m",
    },
    "rook-ceph-osd": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "osd", "uid": "osd"},
}


def put_storage(lab: Lab, node: str) -> None:
    lab.store.create(NAMESPACES, {"metadata": {"name": "storage"}})
    for name, owner in STORAGE.items():
        reference = {**owner, "controller": True}
        meta = {
            "name": name,
            "namespace": "storage",
            "labels": {"app": name},
            "ownerReferences": [reference],
        }
        spec = {
            "nodeName": node,
            "containers": [{"name": "main", "image": "registry.example/storage:1"}],
        }
        lab.store.create(PODS, with_defaults(PODS, {"metadata": meta, "spec": spec}))


def assert_used_is_printed(quiet_lab: Lab, grants: tuple[Grant, ...]) -> None:
    acts = used(quiet_lab)
    assert [act for act in acts if not any(grant.covers(act) for grant in grants)] == []
    assert [right for right in single(grants) if not any(right.covers(act) for act in acts)] == []


def test_each_printed_right_is_used_and_no_other(
    quiet_lab: Lab, run_there: Run, tmp_path: Path
) -> None:
    """Two rollouts, one of an operating process and one of a person, both killed: one is gone on
    with, one undone.
    """
    grants = printed_grants(run_there)
    grant(quiet_lab, grants)
    quiet_lab.call(lambda: put_storage(quiet_lab, "worker-1"))
    for arguments in QUIET:
        ended = run_there(*arguments)
        assert ended.code == ExitCode.OK, (arguments, ended.stdout, ended.stderr)
    for name in STORAGE:
        quiet_lab.call(partial(quiet_lab.store.remove, PODS, name, "storage"))
    kill_a_pass_and_finish_it(quiet_lab, tmp_path, run_there)
    assert sum(quiet_lab.scoreboard().reboots.values()) == 3
    killed_at(
        quiet_lab,
        tmp_path,
        *("draining", "apply", "--yes", "-o", "json", "--allow", "idle"),
        *QUICK_LOCK,
    )
    run_there("status", "--run").ends(ExitCode.OK)
    watching = start(tmp_path, quiet_lab.environment, ("status", "--watch", "-o", "json"))
    assert watching.stdout is not None
    assert any("interrupted" in line for line in watching.stdout)
    quiet_lab.call(lambda: quiet_lab.store.create(CONFIGMAPS, SLOT))
    run_there("abort", "--yes", *QUICK_LOCK).ends(ExitCode.OK)
    end_of(watching).ends(ExitCode.OK)
    run_there("status", *EVIDENCE).ends(ExitCode.OK)
    assert_used_is_printed(quiet_lab, grants)


def test_pods_are_deleted_only_where_that_was_asked_for(
    quiet_lab: Lab, run_there: Run, tmp_path: Path
) -> None:
    """With --disable-eviction the right to evict is another one."""
    (tmp_path / "deleting.toml").write_text("[drain]\ndisable-eviction = true\n")
    plain = set(single(printed_grants(run_there)))
    deleting = set(single(printed_grants(run_there, "roles", "--config", "deleting.toml")))
    assert {(grant.verbs, grant.resources) for grant in deleting - plain} == {
        (("delete",), ("pods",))
    }
    assert {(grant.verbs, grant.resources) for grant in plain - deleting} == {
        (("create",), ("pods/eviction",))
    }
    grant(quiet_lab, deleting)
    run_there("apply", "--yes", "--disable-eviction", "-o", "json", "--node", "worker-1").ends(
        ExitCode.OK
    )
    acts = used(quiet_lab)
    assert any((act.verb, act.resource) == ("delete", "pods") for act in acts)
    assert [act for act in acts if not any(grant.covers(act) for grant in deleting)] == []


def without_each(grants: tuple[Grant, ...]) -> Iterator[tuple[Grant, ...]]:
    """All of them but for one verb of one rule."""
    for rule in grants:
        for verb in rule.verbs:
            rest = tuple(kept for kept in rule.verbs if kept != verb)
            yield tuple(
                msgspec.structs.replace(rule, verbs=rest) if one is rule else one for one in grants
            )


def test_each_right_is_needed_and_missed(lab: Lab) -> None:
    """Over the real wire; what is asked is what `doctor` and `apply` ask."""
    api = connect(lab.kubeconfig, None)
    needs = apply_rights("kube-system")
    missed: list[Right] = []
    for fewer in without_each(grants_of(printed())):
        grant(lab, fewer)
        missed += missing_rights(needs, lambda right: has_right(api, right))
    assert sorted(map(str, missed)) == sorted(map(str, needs))
