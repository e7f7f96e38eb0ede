"""Documents of another version, within the same major one: what is not known is kept, passed over or refused, by rule.

During an update replicas of FleetLock are of two versions, and a laptop is older than the cluster's `operate`. An older
one once rewrote the memory and the slots without whatever it did not know: with that it undid what the newer one had
written down.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.resources import CONFIGMAPS, NODES
from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from rollout.model import marks
from tests.ended import Ended, end_of, start
from tests.kept.write import config_map
from tests.security.records import sealed

pytestmark = pytest.mark.slow  # the real program on a lab
NODES_IN_ALL = 4
Command = Callable[..., Ended]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    scaled = scale(load_scenario("default"), NODES_IN_ALL)
    with Lab.start(scaled, directory=tmp_path / "lab", speed=30) as lab:
        yield lab


@pytest.fixture
def rollout(lab: Lab, tmp_path: Path) -> Command:
    return lambda *arguments: end_of(start(tmp_path, lab.environment, arguments))


def stand(lab: Lab, name: str, key: str, content: dict[str, Any]) -> None:
    meta = {"name": name, "namespace": "kube-system"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {key: json.dumps(content)}}
    lab.call(lambda: lab.store.create(CONFIGMAPS, body))


def standing(lab: Lab, name: str, key: str) -> dict[str, Any]:
    found = config_map(lab, name)
    assert found is not None
    content: dict[str, Any] = json.loads(found["data"][key])
    return content


def test_what_a_newer_version_remembers_outlives_a_change_by_this_one(lab: Lab, rollout: Command) -> None:
    failures = {"failures": 2, "at": "2026-01-01T00:00:00Z", "outcome": "not-back", "console": "https://bmc"}
    versions = {"9.9.9": {"nodes": ["worker-1"], "at": "2026-01-01T00:00:00Z", "held_since": "", "issue": 7}}
    nodes = {"worker-1": failures, "worker-2": failures}
    newer = {"format_version": "1.7", "nodes": nodes, "versions": versions, "quorum": {"of": 3}}
    stand(lab, marks.MEMORY_NAME, "memory.json", newer)
    assert rollout("pause", "--all", "--reason", "sale").code == 0
    assert rollout("release", "--node", "worker-2").code == 0
    after = standing(lab, marks.MEMORY_NAME, "memory.json")
    assert (after["quorum"], after["versions"]["9.9.9"]["issue"]) == ({"of": 3}, 7)
    assert after["nodes"].keys() == {"worker-1"}
    assert after["nodes"]["worker-1"]["console"] == "https://bmc"
    assert after["pause"]["reason"] == "sale"


@pytest.mark.exhaustive
def test_what_a_newer_replica_has_written_at_a_slot_outlives_a_change_by_this_one(lab: Lab, rollout: Command) -> None:
    uids = {name: node_of(lab, name)["metadata"]["uid"] for name in ("worker-1", "worker-2")}
    held = [
        {
            "group": "default",
            "node": name,
            "node_uid": uid,
            "id": "0" * 32,
            "run": f"fleetlock-{name}",
            "since": "2026-01-01T00:00:00Z",
            "boot_id": "before",
            "state": "failed",
            "lane": name,
        }
        for name, uid in uids.items()
    ]
    stand(lab, marks.SLOTS_NAME, "slots.json", {"format_version": "1.7", "held": held, "lanes": 2})
    # no server is there to free it, so it stays, marked as to be freed
    assert rollout("fleetlock", "release", "worker-2").code == 6
    after = standing(lab, marks.SLOTS_NAME, "slots.json")
    assert after["lanes"] == 2
    slots = [(slot["node"], slot["released"], slot["lane"]) for slot in after["held"]]
    assert slots == [("worker-1", False, "worker-1"), ("worker-2", True, "worker-2")]


def node_of(lab: Lab, name: str) -> dict[str, Any]:
    found = lab.call(lambda: lab.store.get(NODES, name))
    assert found is not None
    return dict(found)


def test_a_plan_with_a_word_of_a_newer_version_is_refused_as_such(lab: Lab, rollout: Command, tmp_path: Path) -> None:
    assert rollout("plan", "--out", "saved.plan").code == 0
    plan = json.loads((tmp_path / "saved.plan").read_bytes())
    plan["warnings"].append({"node": "", "object": "", "message": "", "kind": "eclipse"})
    (tmp_path / "newer.plan").write_text(sealed(plan))
    ended = rollout("apply", "newer.plan")
    assert ended.code == 1
    assert "newer.plan is not a complete plan: it has a word that this program does not know: 'eclipse'" in ended.stderr
    assert "hint: Apply it with the version of rollout that made it" in ended.stderr


def test_a_field_that_informs_is_passed_over(lab: Lab, rollout: Command, tmp_path: Path) -> None:
    assert rollout("plan", "--out", "saved.plan", "--node", "worker-1").code == 0
    plan = json.loads((tmp_path / "saved.plan").read_bytes())
    plan["waves"][0]["nodes"][0]["rack"] = "r7"
    plan["estimate"]["odds"] = 0.5
    (tmp_path / "newer.plan").write_text(sealed(plan))
    ended = rollout("apply", "newer.plan")
    assert ended.code == 0, ended.stderr
    assert lab.scoreboard().reboots["worker-1"] == 1


def test_a_plan_from_before_machine_ids_is_applied(lab: Lab, rollout: Command, tmp_path: Path) -> None:
    """Every node of it was once skipped, as "another machine than when it was planned"."""
    assert rollout("plan", "--out", "saved.plan", "--node", "worker-1").code == 0
    plan = json.loads((tmp_path / "saved.plan").read_bytes())
    for node in plan["waves"][0]["nodes"]:
        del node["machine_id"]
    (tmp_path / "older.plan").write_text(sealed(plan))
    ended = rollout("apply", "older.plan")
    assert ended.code == 0, ended.stderr
    assert lab.scoreboard().reboots["worker-1"] == 1
