from copy import deepcopy
from typing import Any

import pytest

from rollout.lab.api.patches import JSON_PATCH, MERGE, STRATEGIC, apply_patch
from rollout.lab.api.resources import DEPLOYMENTS, NODES, PODS, Resource
from rollout.lab.api.statuses import StatusError
from rollout.lab.api.store import Json

CONTAINERS = [{"name": "a", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]


def listed(path: str, value: Any) -> Json:
    """`{"a": {"b": value}}` for `a.b`."""
    for part in reversed(path.split(".")):
        value = {part: value}
    result: Json = value
    return result


@pytest.mark.parametrize(
    ("resource", "path", "before", "patch", "after"),
    [
        (NODES, "spec.taints", [{"key": "a"}], [{"key": "b"}], [{"key": "b"}]),
        (NODES, "spec.podCIDRs", ["a"], ["b", "a"], ["a", "b"]),
        (
            NODES,
            "status.conditions",
            [{"type": "Ready", "status": "True", "reason": "r"}],
            [{"type": "Ready", "status": "False"}],
            [{"type": "Ready", "status": "False", "reason": "r"}],
        ),
        (
            NODES,
            "status.addresses",
            [{"type": "InternalIP", "address": "1"}],
            [{"type": "Hostname", "address": "h"}],
            [{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "1"}],
        ),
        (PODS, "metadata.finalizers", ["a"], ["b"], ["a", "b"]),
        (PODS, "metadata.ownerReferences", [{"uid": "1", "name": "o"}], [{"uid": "1", "$patch": "delete"}], []),
        (PODS, "spec.containers", CONTAINERS, [{"name": "b", "$patch": "delete"}], CONTAINERS[:1]),
        (
            PODS,
            "spec.containers",
            CONTAINERS,
            [{"name": "a", "env": [{"name": "X", "value": "2"}]}],
            [{"name": "a", "env": [{"name": "X", "value": "2"}]}, {"name": "b"}],
        ),
        (PODS, "spec.containers", CONTAINERS, [{"$patch": "replace"}, {"name": "c"}], [{"name": "c"}]),
        (PODS, "spec.tolerations", [{"key": "a"}], [{"key": "b"}], [{"key": "b"}]),
        (
            DEPLOYMENTS,
            "spec.template.spec.containers",
            [{"name": "a", "image": "1", "ports": [{"containerPort": 80}]}],
            [{"name": "a", "image": "2"}],
            [{"name": "a", "image": "2", "ports": [{"containerPort": 80}]}],
        ),
        (PODS, "metadata.labels", {"a": "b", "c": "d"}, {"a": None}, {"c": "d"}),
        (PODS, "metadata.labels", {"a": "b"}, {"$patch": "replace", "c": "d"}, {"c": "d"}),
        (PODS, "metadata.labels", {"a": "b", "c": "d"}, {"$retainKeys": ["c"]}, {"c": "d"}),
    ],
)
def test_strategic(resource: Resource, path: str, before: Any, patch: Any, after: Any) -> None:
    current = listed(path, before)
    untouched = deepcopy(current)
    assert apply_patch(resource, STRATEGIC, current, listed(path, patch)) == listed(path, after)
    assert current == untouched


def test_strategic_directives_beside_a_list() -> None:
    current = {"metadata": {"finalizers": ["a", "b"]}}
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["b"]}}
    assert apply_patch(PODS, STRATEGIC, current, patch) == {"metadata": {"finalizers": ["b"]}}


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ({"a": 1}, {"a": None}, {}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}),
        ({"a": [1]}, {"a": [2]}, {"a": [2]}),
        ({"a": 1}, {"a": {"b": {"c": None, "d": 1}}}, {"a": {"b": {"d": 1}}}),
    ],
)
def test_merge(before: Json, patch: Json, after: Json) -> None:
    assert apply_patch(NODES, MERGE, before, patch) == after


def test_json_patch() -> None:
    patch = [{"op": "test", "path": "/a", "value": 1}, {"op": "add", "path": "/b~1c", "value": 2}]
    assert apply_patch(NODES, JSON_PATCH, {"a": 1}, patch) == {"a": 1, "b/c": 2}


@pytest.mark.parametrize(
    ("media_type", "patch", "code"),
    [
        (JSON_PATCH, [{"op": "test", "path": "/a", "value": 2}], 422),
        (JSON_PATCH, [{"op": "remove", "path": "/none"}], 422),
        (JSON_PATCH, [{"op": "rubbish", "path": "/a"}], 400),
        (JSON_PATCH, {"a": 1}, 400),
        (MERGE, [1], 400),
        (STRATEGIC, {"$patch": "rubbish"}, 400),
        (STRATEGIC, {"status": {"conditions": [{"status": "True"}]}}, 400),
        ("application/apply-patch+yaml", {}, 415),
    ],
)
def test_refusals(media_type: str, patch: Any, code: int) -> None:
    with pytest.raises(StatusError) as refused:
        apply_patch(NODES, media_type, {"a": 1}, patch)
    assert refused.value.code == code
