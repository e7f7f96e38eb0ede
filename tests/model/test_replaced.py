"""What stood on a Node before ours: written down, kept over attempts and runs, and put back."""

from rollout.model import marks
from rollout.model.deferral import announcing, taken_back
from rollout.model.replaced import Fields, parse_replaced, replacing
from tests.planning.builders import node

OURS = Fields({"a": "1"}, {"x": "new"})


def test_the_value_before_is_written_down_and_put_back() -> None:
    before = node("w-1", labels={"a": "0"}, annotations={})
    written = replacing(before, OURS)
    assert written == '{"labels":{"a":["1","0"]},"annotations":{"x":["new",null]}}'
    replaced = parse_replaced(written)
    assert replaced is not None
    after = node("w-1", labels={"a": "1"}, annotations={"x": "new"})
    assert replaced.restoring(after, {"a", "x"}) == ({"a": "0"}, {"x": None})
    assert replaced.restoring(after, {"x"}) == ({}, {"x": None})
    assert replaced.restoring(before, {"a", "x"}) == ({}, {})


def test_a_second_attempt_does_not_take_ours_for_somebody_elses() -> None:
    written = replacing(node("w-1", labels={"a": "0"}), OURS)
    assert written is not None
    claimed = node("w-1", labels={"a": "1"}, annotations={"x": "new", marks.REPLACED: written})
    assert replacing(claimed, OURS) == written
    later = replacing(claimed, Fields({"a": "2", "b": "3"}, {}))
    assert later == '{"labels":{"a":["2","0"],"b":["3",null]},"annotations":{"x":["new",null]}}'


def test_what_is_there_already_is_nothing_to_put_back() -> None:
    assert replacing(node("w-1", labels={"a": "1"}, annotations={"x": "new"}), OURS) is None
    assert replacing(node("w-1"), Fields({}, {})) is None


def test_what_no_rollout_writes_is_not_read() -> None:
    assert parse_replaced('{"labels":{"a":"b"}}') is None
    assert parse_replaced('{"labels":' + " " * 10000 + "{}}") is None
    assert parse_replaced("[" * 5000) is None


def test_a_node_that_waits_is_told_of_once_and_gets_back_what_it_had() -> None:
    before = node("w-1", labels={marks.FLUO_NEEDED: "false"})
    fields = Fields({marks.FLUO_NEEDED: "true"}, {marks.FLUO_STATUS: "IDLE"})
    patch = announcing(before, fields)
    assert patch is not None
    told = node("w-1", labels=patch["metadata"]["labels"], annotations=patch["metadata"]["annotations"])
    assert announcing(told, fields) is None
    assert taken_back(told) == {
        "metadata": {
            "labels": {marks.FLUO_NEEDED: "false"},
            "annotations": {marks.FLUO_STATUS: None, marks.ANNOUNCED: None},
        }
    }
    assert announcing(node("w-1", annotations={marks.RUN: "run"}), fields) is None
    assert taken_back(before) is None


def test_a_node_whose_turn_comes_keeps_what_stood_there_before_its_wait() -> None:
    patch = announcing(node("w-1"), Fields({}, {marks.FLUO_STATUS: "IDLE"}))
    assert patch is not None
    waiting = node("w-1", annotations=patch["metadata"]["annotations"])
    assert replacing(waiting, Fields({}, {marks.FLUO_STATUS: "OTHER"})) == (
        f'{{"annotations":{{"{marks.FLUO_STATUS}":["OTHER",null]}}}}'
    )


def test_a_forged_wait_chooses_no_label() -> None:
    forged = '{"labels":{"tenant":["a","b"]}}'
    patch = taken_back(node("w-1", labels={"tenant": "a"}, annotations={marks.ANNOUNCED: forged}))
    assert patch == {"metadata": {"labels": {}, "annotations": {marks.ANNOUNCED: None}}}
