"""What was written before is read today: documents of older versions, kept in the folders beside this file.

Plans are saved, journals are kept for months, and a rollout, its nodes' marks, the memory and FleetLock's slots outlive
the image that wrote them. A folder is added at each release (`write.py`), and never changed: a test that fails here
means that a user's document is not understood any more.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rollout.adapters.journal import read_lines
from rollout.adapters.kube.api import connect
from rollout.execution.record.record import read_record
from rollout.gather.cluster.memory import read_memory
from rollout.gather.cluster.slots import read_slots
from rollout.lab.api.resources import CONFIGMAPS, NAMESPACES, NODES
from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from rollout.planning.document import decode_plan
from rollout.report.experience import past_of
from rollout.report.runs.report import report_of
from tests.ended import Ended, end_of, start
from tests.kept.write import NODES_IN_ALL
from tests.published import published
from tests.security.records import sealed

pytestmark = pytest.mark.slow  # a lab for what stands on a cluster
HERE = Path(__file__).parent
VERSIONS = sorted(folder for folder in HERE.iterdir() if (folder / "plan.json").exists())
PREFIX = "node-rollout.dev/"


def kept(name: str) -> list[Any]:
    """The files of this name, by version."""
    files = [folder / name for folder in VERSIONS if (folder / name).exists()]
    assert files
    return [pytest.param(file, id=file.parent.name) for file in files]


def mistakes(name: str, document: Any) -> list[str]:
    return [
        f"{error.json_path}: {error.message}" for error in Draft202012Validator(published(name)).iter_errors(document)
    ]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    scaled = scale(load_scenario("default"), NODES_IN_ALL)
    with Lab.start(scaled, directory=tmp_path / "lab", speed=30) as lab:
        yield lab


def rollout(home: Path, lab: Lab, *arguments: str) -> Ended:
    return end_of(start(home, lab.environment, arguments))


def put(lab: Lab, file: Path) -> None:
    """Have this ConfigMap stand on the cluster."""
    content = json.loads(file.read_bytes())
    lab.call(lambda: lab.store.create(CONFIGMAPS, content))


def put_record(lab: Lab, file: Path) -> None:
    """The same of a rollout's record, as if it were this cluster's."""
    content = json.loads(file.read_bytes())
    plan = json.loads(content["data"]["plan.json"])
    space = lab.call(lambda: lab.store.get(NAMESPACES, "kube-system"))
    assert space is not None
    plan["cluster"]["uid"] = space["metadata"]["uid"]
    content["data"]["plan.json"] = sealed(plan)
    lab.call(lambda: lab.store.create(CONFIGMAPS, content))


def begin(lab: Lab, file: Path) -> list[str]:
    """Have Nodes be begun as they were then; the boots and machines are this lab's."""
    begun = json.loads(file.read_bytes())

    def mark(name: str) -> None:
        node = lab.store.get(NODES, name)
        assert node is not None
        info = node["status"]["nodeInfo"]
        today = {PREFIX + "boot-id-before": info["bootID"], PREFIX + "machine-id": info["machineID"]}
        ours = {**begun[name], **{mark: value for mark, value in today.items() if mark in begun[name]}}
        annotations = {**node["metadata"].get("annotations", {}), **ours}
        meta, spec = {**node["metadata"], "annotations": annotations}, {**node["spec"], "unschedulable": True}
        lab.store.put(NODES, {**node, "metadata": meta, "spec": spec})

    for name in begun:
        lab.call(lambda name=name: mark(name))  # type: ignore[misc]
    return sorted(begun)


@pytest.mark.parametrize("file", kept("plan.json"))
def test_a_saved_plan_is_read_shown_and_as_its_schema_says(file: Path, tmp_path: Path) -> None:
    document = file.read_bytes()
    plan = decode_plan(document, file.name)
    assert [node.name for node in plan.nodes]
    assert mistakes("plan", json.loads(document)) == []
    shown = end_of(start(tmp_path, {}, ("plan", str(file))))
    assert shown.code == 0, shown.stderr
    assert all(node.name in shown.stdout for node in plan.nodes)


@pytest.mark.parametrize("file", kept("journal.jsonl"))
def test_a_journal_is_reported_learned_from_and_as_its_schema_says(file: Path, tmp_path: Path) -> None:
    records = list(read_lines(file))
    assert None not in records
    for record in records:
        assert mistakes("journal", record) == []
    whole = [record for record in records if record is not None]
    report = report_of(whole, origin=file.name)
    assert (report.gaps, bool(report.failures)) == ((), True)
    assert past_of([whole], whole[0]["cluster"]["uid"]).drains
    told = end_of(start(tmp_path, {}, ("report", str(file), "--format", "json")))
    assert told.code == 0, told.stderr
    assert json.loads(told.stdout)["failed"] == report.failed


@pytest.mark.sample
@pytest.mark.parametrize("file", kept("record.json"))
@pytest.mark.parametrize("way_out", ["resume", "abort"])
def test_a_rollout_that_was_killed_is_gone_on_with_and_undone(
    file: Path, way_out: str, lab: Lab, tmp_path: Path
) -> None:
    put_record(lab, file)
    begun = begin(lab, file.parent / "marks.json")
    read = read_record(connect(lab.kubeconfig, None), "kube-system")
    assert read is not None
    assert read.problem == ""
    shown = json.loads(rollout(tmp_path, lab, "status", "--run", "-o", "json").stdout)
    assert (shown["state"], sorted(shown["nodes"])) == ("interrupted", begun)
    ended = rollout(tmp_path, lab, way_out, "--yes")
    assert ended.code == 0, ended.stderr
    score = lab.scoreboard()
    assert (score.cordons_left, score.annotations_left, score.killed, score.budgets_broken) == ((), {}, (), ())
    workers = {name: count for name, count in score.reboots.items() if name.startswith("worker")}
    assert set(workers.values()) == {1 if way_out == "resume" else 0}


@pytest.mark.parametrize("file", kept("memory.json"))
def test_what_was_remembered_still_counts(file: Path, lab: Lab, tmp_path: Path) -> None:
    put(lab, file)
    memory = read_memory(connect(lab.kubeconfig, None), "kube-system")
    assert (memory.problem, len(memory.nodes)) == ("", 1)
    (version,) = memory.versions
    assert version in rollout(tmp_path, lab, "status").stdout
    assert rollout(tmp_path, lab, "release", "--all").code == 0


@pytest.mark.parametrize("file", kept("slots.json"))
def test_a_slot_of_fleetlock_is_still_held(file: Path, lab: Lab, tmp_path: Path) -> None:
    put(lab, file)
    slots = read_slots(connect(lab.kubeconfig, None), "kube-system").slots
    assert [slot.node for slot in slots.held] == ["worker-1"]
    told = json.loads(rollout(tmp_path, lab, "fleetlock", "status", "-o", "json").stdout)
    assert "worker-1" in json.dumps(told)
