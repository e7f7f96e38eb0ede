"""How often in a row a host's reboots have brought no other version, by what the last one left on its Node."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.node_marks import last_result, unmoved_before, unmoved_reboots
from tests.planning.builders import node

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def left(**words: str) -> Node:
    result = {"outcome": "succeeded", "at": NOW.isoformat(), "version": "4081.2.0", "unmoved": "2", **words}
    return node("worker-1", annotations={marks.LAST_RESULT: json.dumps(result)})


def test_the_last_result_tells_it() -> None:
    assert unmoved_before(left(), "4081.2.0", NOW) == 2
    assert unmoved_before(node("worker-1"), "4081.2.0", NOW) == 0


def test_what_a_newer_version_adds_to_it_takes_nothing_away() -> None:
    result = {**json.loads(left().annotations[marks.LAST_RESULT]), "reboots": 3, "seen": ["a"], "console": None}
    newer = node("worker-1", annotations={marks.LAST_RESULT: json.dumps(result)})
    assert last_result(newer) == last_result(left())
    assert unmoved_before(newer, "4081.2.0", NOW) == 2


def test_it_is_no_row_where_another_version_came_between() -> None:
    assert unmoved_before(left(), "4152.2.0", NOW) == 0


@pytest.mark.parametrize("ahead", [-2.9, -1, 1, 2.9])
def test_a_clock_that_is_a_day_off_ends_no_row(ahead: float) -> None:
    """Whoever wrote it had another clock, and the longest rest is a day."""
    assert unmoved_before(left(), "4081.2.0", NOW + timedelta(days=ahead)) == 2


@pytest.mark.parametrize("ahead", [-3.1, 3.1])
def test_a_reboot_now_and_then_is_no_row(ahead: float) -> None:
    assert unmoved_before(left(), "4081.2.0", NOW + timedelta(days=ahead)) == 0


@pytest.mark.parametrize("words", [{"unmoved": "many"}, {"unmoved": "-1"}, {"unmoved": "٣"}, {"unmoved": "9" * 5000}])
def test_what_is_no_number_counts_as_none(words: dict[str, str]) -> None:
    assert unmoved_reboots(left(**words)) == 0


def test_a_time_that_is_none_or_is_not_known_is_no_row() -> None:
    assert unmoved_before(left(at="lately"), "4081.2.0", NOW) == 0
    assert unmoved_before(left(), "4081.2.0", None) == 0
