"""Objects that must be healthy, through the real program: a Ceph cluster of Rook's in the lab."""

import json
from functools import partial
from pathlib import Path

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import CEPH_CLUSTERS, NAMESPACES
from rollout.lab.lab import Lab
from tests.apply.conftest import ONE_LOOK, Rollout, Started
from tests.security.hands import at_phase
from tests.state import rebooted
from tests.used_rights import grants_of

RULE = """
[[gates.healthy]]
resource = "cephclusters.ceph.rook.io/rook-ceph/main"
expression = "status.ceph.health == 'HEALTH_OK'"
"""
APPLY = ("apply", "--yes", "-o", "json", "--control-plane", "exclude", *ONE_LOOK)
FIRST = ("--node", "worker-1")
SECOND = ("--node", "worker-2")
UNHEALTHY = (
    "cephclusters.ceph.rook.io/rook-ceph/main is not healthy: status.ceph.health == 'HEALTH_OK' is"
    " false"
)


@pytest.fixture
def lab(started: Started) -> Lab:
    lab = started("default", 6)
    lab.call(partial(lab.store.create, NAMESPACES, {"metadata": {"name": "rook-ceph"}}))
    return lab


@pytest.fixture
def rule(tmp_path: Path) -> tuple[str, ...]:
    file = tmp_path / "healthy.toml"
    file.write_text(RULE)
    return "--config", str(file)


def put_ceph(lab: Lab, health: str) -> None:
    """Only in the lab's loop."""
    metadata = {"name": "main", "namespace": "rook-ceph"}
    status = {"ceph": {"health": health}}
    if lab.store.get(CEPH_CLUSTERS, "main", "rook-ceph") is None:
        lab.store.create(CEPH_CLUSTERS, {"metadata": metadata, "spec": {}, "status": status})
        return
    lab.store.put(
        CEPH_CLUSTERS,
        {**lab.store.items(CEPH_CLUSTERS)[0], "status": status},
    )


def test_nodes_start_once_the_object_is_healthy(
    lab: Lab, rollout: Rollout, rule: tuple[str, ...]
) -> None:
    """Each reboot makes it unhealthy for a while, which ends after the wave."""
    lab.call(partial(put_ceph, lab, "HEALTH_OK"))
    seen: list[str] = []

    def degrade(_node: str) -> None:
        put_ceph(lab, "HEALTH_WARN")

    def mend_later(_node: str) -> None:
        lab.world.cluster.agenda.after(360, lambda: put_ceph(lab, "HEALTH_OK"))

    def note(_node: str) -> None:
        seen.append(lab.store.items(CEPH_CLUSTERS)[0]["status"]["ceph"]["health"])

    at_phase(lab, "rebooting", degrade, node="worker-1")
    at_phase(lab, "ready", mend_later, node="worker-1")
    at_phase(lab, "cordoned", note, node="worker-2")
    ended = rollout(lab, *APPLY, *FIRST, *SECOND, *rule).ends(0)
    assert seen == ["HEALTH_OK"]
    assert rebooted(lab) == {"worker-1", "worker-2"}
    assert UNHEALTHY in ended.stdout


def test_an_object_that_does_not_become_healthy_after_a_wave_ends_the_rollout(
    lab: Lab, rollout: Rollout, rule: tuple[str, ...]
) -> None:
    lab.call(partial(put_ceph, lab, "HEALTH_OK"))
    at_phase(lab, "rebooting", lambda _node: put_ceph(lab, "HEALTH_WARN"), node="worker-1")
    ended = rollout(lab, *APPLY, *FIRST, *SECOND, *rule, "--settle-timeout", "3s").ends(4)
    assert rebooted(lab) == {"worker-1"}
    assert ended.summary["kinds"]["worker-2"] == "unsettled"
    assert UNHEALTHY in ended.summary["reasons"]["worker-2"]


def test_an_object_that_does_not_exist_holds_the_node(
    lab: Lab, rollout: Rollout, rule: tuple[str, ...]
) -> None:
    ended = rollout(lab, *APPLY, *FIRST, *rule, "--set", "gates.timeout=1s").ends(4)
    assert rebooted(lab) == set()
    assert ended.summary["reasons"]["worker-1"].startswith(
        "the health of cephclusters.ceph.rook.io/rook-ceph/main is unknown: it does not exist"
    )


def test_an_object_that_may_not_be_read_holds_the_node(
    lab: Lab, rollout: Rollout, rule: tuple[str, ...]
) -> None:
    lab.call(partial(put_ceph, lab, "HEALTH_OK"))
    lab.inflict(ApiFault(answer=FaultAnswer.FORBIDDEN, verb="get", resource="cephclusters"))
    ended = rollout(lab, *APPLY, *FIRST, *rule, "--set", "gates.timeout=1s").ends(4)
    assert rebooted(lab) == set()
    assert "is unknown: " in ended.summary["reasons"]["worker-1"]
    assert "denied the request" in ended.summary["reasons"]["worker-1"]


def test_a_pass_of_operate_leaves_the_nodes_to_the_next_one(
    lab: Lab, rollout: Rollout, rule: tuple[str, ...]
) -> None:
    lab.call(partial(put_ceph, lab, "HEALTH_ERR"))
    operate = ("operate", "--once", "-o", "json", "--control-plane", "exclude", *ONE_LOOK, *rule)
    held = rollout(lab, *operate, "--set", "gates.timeout=1s").ends(0)
    assert UNHEALTHY in held.stdout
    assert rebooted(lab) == set()
    lab.call(partial(put_ceph, lab, "HEALTH_OK"))
    rollout(lab, *operate).ends(0)
    assert rebooted(lab) == {"worker-1", "worker-2", "worker-3"}


def grant_printed_roles(lab: Lab, rollout: Rollout, *arguments: str) -> None:
    """Let the program do only what `rollout manifests` prints with these arguments."""
    printed = rollout(lab, "manifests", "roles", "-o", "json", *arguments).ends(0)
    roles = [item for item in json.loads(printed.stdout)["items"] if item["kind"].endswith("Role")]
    covers = tuple(grant.covers for grant in grants_of(roles))
    lab.call(lambda: setattr(lab.api.access, "grants", covers))


def test_the_printed_roles_allow_to_read_the_object(
    lab: Lab, rollout: Rollout, rule: tuple[str, ...]
) -> None:
    lab.call(partial(put_ceph, lab, "HEALTH_OK"))
    grant_printed_roles(lab, rollout, *rule)
    rollout(lab, *APPLY, *FIRST, *rule).ends(0)
    assert rebooted(lab) == {"worker-1"}


def test_a_missing_right_is_named_before_anything_starts(
    lab: Lab, rollout: Rollout, rule: tuple[str, ...]
) -> None:
    lab.call(partial(put_ceph, lab, "HEALTH_OK"))
    grant_printed_roles(lab, rollout)
    right = "get cephclusters.ceph.rook.io main in namespace rook-ceph"
    refused = rollout(lab, *APPLY, *FIRST, *rule).ends(1)
    assert f"this user is not allowed to: {right}" in " ".join(refused.stderr.split())
    assert rebooted(lab) == set()
    checked = rollout(lab, "doctor", "-o", "wide", *rule)
    assert right in " ".join(checked.stdout.split())
