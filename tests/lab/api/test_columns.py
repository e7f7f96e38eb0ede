from datetime import UTC, datetime
from typing import Any

import pytest

from rollout.lab.api.representation import columns_of, pod_status
from rollout.lab.api.resources import BUDGETS, DAEMONSETS, EVENTS, NODES, PODS, STORED, Resource
from rollout.lab.api.store import Json

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE, HOUR, DAY = 60, 3600, 86400


def a_pod(phase: str, *states: Json, ready: bool = True, **metadata: str) -> Json:
    containers = [{"name": str(index), "ready": ready, "state": state} for index, state in enumerate(states)]
    return {"metadata": metadata, "spec": {}, "status": {"phase": phase, "containerStatuses": containers}}


@pytest.mark.parametrize(
    ("pod", "status"),
    [
        (a_pod("Running", {"running": {}}), "Running"),
        (a_pod("Pending", {"waiting": {"reason": "ContainerCreating"}}), "ContainerCreating"),
        (a_pod("Running", {"waiting": {"reason": "CrashLoopBackOff"}}, {"running": {}}), "CrashLoopBackOff"),
        (a_pod("Succeeded", {"terminated": {"reason": "Completed", "exitCode": 0}}), "Completed"),
        (a_pod("Running", {"running": {}}, deletionTimestamp="2026-01-01T00:00:00Z"), "Terminating"),
        ({"metadata": {}, "spec": {}, "status": {"phase": "Failed", "reason": "Evicted"}}, "Evicted"),
    ],
)
def test_pod_status(pod: Json, status: str) -> None:
    assert pod_status(pod) == status


@pytest.mark.parametrize(
    ("resource", "obj", "column", "cell"),
    [
        (NODES, {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, "Status", "NotReady"),
        (NODES, {"spec": {"unschedulable": True}}, "Status", "Unknown,SchedulingDisabled"),
        (NODES, {"status": {"addresses": [{"type": "InternalIP", "address": "1"}]}}, "Internal-IP", "1"),
        (NODES, {}, "Roles", "<none>"),
        (BUDGETS, {"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 2}}, "Min Available", "50%"),
        (BUDGETS, {"spec": {"minAvailable": 1}}, "Max Unavailable", "N/A"),
        (DAEMONSETS, {"status": {"numberReady": 3, "desiredNumberScheduled": 4}}, "Ready", "3/4"),
        (EVENTS, {"involvedObject": {"kind": "Node", "name": "a"}}, "Object", "node/a"),
        (PODS, {"spec": {"nodeName": "a"}, "status": {}}, "Node", "a"),
    ],
)
def test_cells(resource: Resource, obj: Json, column: str, cell: Any) -> None:
    found = next(each for each in columns_of(resource) if each.name == column)
    assert found.cell({"metadata": {"name": "n"}, **obj}, NOW) == cell


@pytest.mark.parametrize("resource", STORED, ids=lambda resource: resource.plural)
def test_bare_objects_have_rows(resource: Resource) -> None:
    obj: Json = {"metadata": {"name": "n"}, "spec": {}, "involvedObject": {}}
    row = [column.cell(obj, NOW) for column in columns_of(resource)]
    assert "n" in row
