from copy import deepcopy
from typing import Any

import pytest

from rollout.lab.api.statuses import StatusError
from rollout.lab.api.store import Json
from rollout.lab.api.writing import MERGE, STRATEGIC, apply_patch

CONTAINERS = [{"name": "a", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]
READY = {"type": "Ready", "status": "True", "reason": "r"}


@pytest.mark.parametrize(
    ("media_type", "before", "patch", "after"),
    [
        (MERGE, {"a": 1}, {"a": None}, {}),
        (MERGE, {"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}),
        (MERGE, {"conditions": [READY]}, {"conditions": []}, {"conditions": []}),
        (MERGE, {"a": 1}, {"a": {"b": {"c": None, "d": 1}}}, {"a": {"b": {"d": 1}}}),
        (STRATEGIC, {"taints": [{"key": "a"}]}, {"taints": [{"key": "b"}]}, {"taints": [{"key": "b"}]}),
        (
            STRATEGIC,
            {"conditions": [READY]},
            {"conditions": [{"type": "New"}, {"type": "Ready", "status": "False"}]},
            {"conditions": [{"type": "New"}, {**READY, "status": "False"}]},
        ),
        (
            STRATEGIC,
            {"containers": CONTAINERS},
            {"containers": [{"name": "b", "$patch": "delete"}]},
            {"containers": CONTAINERS[:1]},
        ),
        (
            STRATEGIC,
            {"containers": CONTAINERS},
            {"containers": [{"name": "a", "env": [{"name": "X", "value": "2"}]}], "$setElementOrder/containers": []},
            {"containers": [{"name": "a", "env": [{"name": "X", "value": "2"}]}, {"name": "b"}]},
        ),
        (STRATEGIC, {"labels": {"a": "b"}}, {"labels": {"$patch": "replace", "c": "d"}}, {"labels": {"c": "d"}}),
    ],
)
def test_patches(media_type: str, before: Json, patch: Any, after: Json) -> None:
    untouched = deepcopy(before)
    assert apply_patch(media_type, before, patch) == after
    assert before == untouched


@pytest.mark.parametrize(
    ("media_type", "patch", "code"),
    [
        (MERGE, [1], 400),
        (STRATEGIC, {"conditions": [{"status": "True"}]}, 400),
        ("application/json-patch+json", [], 415),
        ("application/apply-patch+yaml", {}, 415),
    ],
)
def test_refusals(media_type: str, patch: Any, code: int) -> None:
    with pytest.raises(StatusError) as refused:
        apply_patch(media_type, {"a": 1}, patch)
    assert refused.value.code == code
