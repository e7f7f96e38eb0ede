from dataclasses import replace

import pytest

from rollout.errors import PlanFileError
from rollout.model.host import Host, ProbeFailure, ProbeFailureKind, UpdateOperation, UpdateStatus
from rollout.planning.plan.build import PlanInputs, build_plan
from rollout.planning.plan.document import decode_plan, encode_plan
from rollout.planning.plan.staleness import changes
from tests.planning.builders import IDENTITY, facts, inputs, node

SAVED = build_plan(inputs([node("w-1"), node("w-2")]))


def test_an_update_staged_elsewhere_meanwhile_is_no_change() -> None:
    saved = build_plan(inputs([node("w-1"), node("w-2")], observations={"w-2": facts("w-2", staged=False)}))
    assert changes(saved, inputs([node("w-1"), node("w-2")])) == ()


def refusing(name: str) -> ProbeFailure:
    return ProbeFailure(Host(name, "127.0.0.1"), ProbeFailureKind.UNREACHABLE, "connection refused")


@pytest.mark.parametrize(
    ("fresh", "says"),
    [
        (inputs([node("w-1")]), "w-2: the Node is gone"),
        (inputs([node("w-1"), node("w-2"), node("w-3")]), "w-3: a Node that is not in the plan"),
        (inputs([node("w-1"), node("w-2", uid="other")]), "w-2: the Node was deleted and created again"),
        (inputs([node("w-1"), node("w-2", unschedulable=True)]), "w-2: it has been cordoned since"),
        (
            inputs([node("w-1"), node("w-2")], observations={"w-1": facts("w-1", boot_id="b2")}),
            "boot id boot-w-1 then, b2 now",
        ),
        (inputs([node("w-1"), node("w-2")], observations={"w-1": facts("w-1", running_version="9")}), "runs 9 now"),
        (inputs([node("w-1"), node("w-2")], observations={"w-1": facts("w-1", staged=False)}), "staged update is gone"),
        (
            inputs(
                [node("w-1"), node("w-2")],
                observations={"w-1": facts("w-1", update=UpdateStatus(UpdateOperation.NEED_REBOOT, "9.9.9"))},
            ),
            "9.9.9 is now",
        ),
        (inputs([node("w-1"), node("w-2")], observations={"w-1": refusing("w-1")}), "connection refused"),
    ],
)
def test_each_difference_is_named(fresh: PlanInputs, says: str) -> None:
    found = tuple(map(str, changes(SAVED, fresh)))
    assert len(found) == 1
    assert says in found[0]


def test_another_cluster_is_all_that_is_said() -> None:
    fresh = inputs([])
    other = replace(
        fresh, snapshot=replace(fresh.snapshot, identity=replace(IDENTITY, uid="other", server="https://b"))
    )
    assert tuple(map(str, changes(SAVED, other))) == (
        "the plan is for another cluster (https://127.0.0.1:6443, not https://b)",
    )


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: b"", "not a rollout plan"),
        (lambda data: data[: len(data) // 2], "not a rollout plan"),
        (lambda data: b'{"hello": 1}', "not a rollout plan"),
        (lambda data: data.replace(b'"1.0"', b'"2.0"'), "plan format 2.0"),
        (lambda data: data.replace(b'"boot_id"', b'"boot"'), "not a complete plan"),
        (lambda data: data.replace(b'"10m"', b'"soon"'), "is not a duration"),
        (lambda data: data.replace(b'"w-2"', b'"w-9"'), "edited"),
    ],
)
def test_a_damaged_document_is_refused(damage: object, says: str) -> None:
    with pytest.raises(PlanFileError, match=says):
        decode_plan(damage(encode_plan(SAVED)), "plan.json")  # type: ignore[operator]
