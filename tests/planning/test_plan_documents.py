"""Whatever stands in a plan's file, reading it gives a plan or one error of one kind."""

import hashlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout.errors import PlanFileError
from rollout.model.host import Host, ProbeFailure, ProbeFailureKind, UpdateOperation, UpdateStatus
from rollout.model.plan import PlanWarning, RolloutPlan
from rollout.model.policy import Policy
from rollout.model.quantity import Count
from rollout.model.text import is_object_name, is_run_id
from rollout.planning.plan.build import PlanInputs, build_plan
from rollout.planning.plan.document import LARGEST_DOCUMENT, decode_plan, encode_plan, with_id
from rollout.planning.plan.staleness import find_differences
from tests.planning.builders import IDENTITY, facts, inputs, node

SAVED = encode_plan(build_plan(inputs([node("w-1"), node("w-2")])))


DOCUMENT: dict[str, Any] = json.loads(SAVED)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=9), children, max_size=3)
    ),
    max_leaves=9,
)


def test_counts_are_numbers_and_shares_are_text() -> None:
    policy = Policy(max_unavailable=Count(3), ramp=(Count(1), Count(25, percent=True)))
    document = json.loads(encode_plan(build_plan(inputs([node("w-1")], policy=policy))))["policy"]
    assert document["max_unavailable"] == 3
    assert document["ramp"] == [1, "25%"]


def test_a_plan_whose_counts_are_text_is_still_read() -> None:
    policy = {**DOCUMENT["policy"], "max_unavailable": "3"}
    plan = decode_plan(forged({**DOCUMENT, "policy": policy}), "web.plan")
    assert plan.policy.max_unavailable == Count(3)


def forged(document: dict[str, Any]) -> bytes:
    """With the checksum that goes with what it says, as whoever forges one makes it."""
    content = msgspec.json.encode({**document, "plan_id": ""})
    return json.dumps(
        {**document, "plan_id": hashlib.sha256(content).hexdigest()[:16]}, ensure_ascii=False
    ).encode()


def changed(rest: Any, path: list[int], value: Any) -> Any:
    """The same, with another value at a place that these numbers lead to."""
    if not path or not isinstance(rest, dict | list) or not rest:
        return value
    keys = list(rest) if isinstance(rest, dict) else list(range(len(rest)))
    key = keys[path[0] % len(keys)]
    items = {
        name: changed(rest[name], path[1:], value) if name == key else rest[name] for name in keys
    }
    return items if isinstance(rest, dict) else list(items.values())


def read(data: bytes) -> None:
    """A plan that can be written again, or the one error, told in a line."""
    plan, refused = attempt(data)
    if refused:
        assert refused.message.startswith("web.plan ")
        assert len(refused.message) < 300
        assert refused.hint
    if plan:
        assert is_run_id(plan.plan_id)
        assert all(is_object_name(node.name) for node in plan.nodes)
        again = with_id(plan)
        assert decode_plan(encode_plan(again), "again") == again


def attempt(data: bytes) -> tuple[RolloutPlan | None, PlanFileError | None]:
    try:
        return decode_plan(data, "web.plan"), None
    except PlanFileError as error:
        return None, error


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    read(data)


@given(st.integers(0, len(SAVED)), st.integers(0, 60), st.binary(max_size=9))
def test_a_plan_with_a_piece_of_something_else(at: int, length: int, piece: bytes) -> None:
    read(SAVED[:at] + piece + SAVED[at + length :])


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=120)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=7), VALUES)
def test_a_forged_plan_with_any_value_anywhere(path: list[int], value: Any) -> None:
    document = changed(DOCUMENT, path, value)
    try:
        data = forged(document)
    except UnicodeEncodeError:
        data = json.dumps(document).encode()
    read(data)


def with_rule(*names: str, value: Any) -> bytes:
    document = json.loads(SAVED)
    rules = document
    for name in names[:-1]:
        rules = rules[name]
    rules[names[-1]] = value
    return forged(document)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b" " * (LARGEST_DOCUMENT + 1), "larger than 32 MiB"),
        (b'{"format_version":"1.0","x":[' + b"[]," * 600_000 + b"1]}", "more than 1000000 values"),
        (b"[" * 300_000, "not a rollout plan"),
        (b'{"format_version":"1.0","x":' + b'{"x":' * 300_000, "not a rollout plan"),
        (SAVED + b"{}", "not a rollout plan"),
        (SAVED[: len(SAVED) // 2], "not a rollout plan"),
        (b'{"hello": 1}', "not a rollout plan"),
        (SAVED.replace(b'"1.0"', b'"2.0"'), "plan format 2.0"),
        (SAVED.replace(b'"boot_id"', b'"boot"'), "not a complete plan"),
        (SAVED.replace(b'"10m"', b'"soon"'), "is not a duration"),
        (SAVED.replace(b'"w-2"', b'"w-9"'), "edited"),
        (SAVED.replace(b'"10m"', b"600"), "a Duration must be a string"),
        (
            with_rule("policy", "quorum", value=3),
            "a setting that this program does not know: policy.quorum",
        ),
        (with_rule("selection", "zones", value=["a"]), "selection.zones"),
        (
            with_rule("policy", "drain", "grace_period", value=-1),
            ">= 0 - at `$.policy.drain.grace_period`",
        ),
        (
            with_rule("policy", "gates", "windows", "windows", value=["at night"]),
            "'at night' is not a window",
        ),
        (with_rule("policy", "courtesy", "fluo_labels", value=["all"]), "not a complete plan"),
        (
            with_rule(
                "waves",
                value=[{**DOCUMENT["waves"][0], "nodes": DOCUMENT["waves"][0]["nodes"] * 2}],
            ),
            "w-1",
        ),
        (
            with_rule(
                "waves",
                value=[
                    {
                        **DOCUMENT["waves"][0],
                        "nodes": [{**DOCUMENT["waves"][0]["nodes"][0], "name": "../x"}],
                    }
                ],
            ),
            "'../x' is not a Node name",
        ),
    ],
)
def test_each_is_told_what_is_wrong_with_it(data: bytes, says: str) -> None:
    with pytest.raises(PlanFileError) as told:
        decode_plan(data, "web.plan")
    assert says in told.value.message


@pytest.mark.parametrize(
    "name", ["", "../x", "a/b", "a.b", "a--b", "-a", "a\n", "A", "a" * 64, "\x1b[2J"]
)
def test_what_is_no_id_of_a_run(name: str) -> None:
    assert not is_run_id(name)


@pytest.mark.parametrize("character", ["\x7f", "\x9b", "\u202e"])
def test_a_plan_that_quotes_what_a_terminal_obeys_is_still_itself(character: str) -> None:
    plan = decode_plan(SAVED, "web.plan")
    quoting = with_id(
        replace(plan, warnings=(PlanWarning("w-1", "pod/x", f"it says {character}"),))
    )
    assert decode_plan(encode_plan(quoting), "again") == quoting


OF_TWO = build_plan(inputs([node("w-1"), node("w-2")]))


def test_an_update_staged_elsewhere_meanwhile_is_no_change() -> None:
    saved = build_plan(
        inputs([node("w-1"), node("w-2")], observations={"w-2": facts("w-2", staged=False)})
    )
    assert find_differences(saved, inputs([node("w-1"), node("w-2")])) == ()


def refusing(name: str) -> ProbeFailure:
    return ProbeFailure(Host(name, "127.0.0.1"), ProbeFailureKind.UNREACHABLE, "connection refused")


@pytest.mark.parametrize(
    ("fresh", "says"),
    [
        (inputs([node("w-1")]), "w-2: the Node is gone"),
        (inputs([node("w-1"), node("w-2"), node("w-3")]), "w-3: a Node that is not in the plan"),
        (
            inputs([node("w-1"), node("w-2", uid="other")]),
            "w-2: the Node was deleted and created again",
        ),
        (
            inputs([node("w-1"), node("w-2", unschedulable=True)]),
            "w-2: it has been cordoned since the plan was made",
        ),
        (
            inputs([node("w-1"), node("w-2")], observations={"w-1": facts("w-1", boot_id="b2")}),
            "boot ID boot-w-1 then, b2 now",
        ),
        (
            inputs(
                [node("w-1"), node("w-2")], observations={"w-1": facts("w-1", running_version="9")}
            ),
            "runs 9 now",
        ),
        (
            inputs([node("w-1"), node("w-2")], observations={"w-1": facts("w-1", staged=False)}),
            "staged update is gone",
        ),
        (
            inputs(
                [node("w-1"), node("w-2")],
                observations={
                    "w-1": facts("w-1", update=UpdateStatus(UpdateOperation.NEED_REBOOT, "9.9.9"))
                },
            ),
            "9.9.9 is staged now",
        ),
        (
            inputs([node("w-1"), node("w-2")], observations={"w-1": refusing("w-1")}),
            "connection refused",
        ),
    ],
)
def test_each_difference_is_named(fresh: PlanInputs, says: str) -> None:
    found = tuple(map(str, find_differences(OF_TWO, fresh)))
    assert len(found) == 1
    assert says in found[0]


def test_another_cluster_is_all_that_is_said() -> None:
    fresh = inputs([])
    other = replace(
        fresh,
        snapshot=replace(
            fresh.snapshot, identity=replace(IDENTITY, uid="other", server="https://b")
        ),
    )
    assert tuple(map(str, find_differences(OF_TWO, other))) == (
        "the plan is for another cluster (https://127.0.0.1:6443, not https://b)",
    )
