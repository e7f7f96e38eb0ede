"""How often in a row a host's reboots have brought no other version, by what the last one left on its Node."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.node_marks import unmoved_before, unmoved_reboots
from tests.planning.builders import node

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def left(**words: str) -> Node:
    result = {"outcome": "succeeded", "at": NOW.isoformat(), "version": "4081.2.0", "unmoved": "2", **words}
    return node("worker-1", annotations={marks.LAST_RESULT: json.dumps(result)})


def test_the_last_result_tells_it() -> None:
    assert unmoved_before(left(), "4081.2.0", NOW) == 2
    assert unmoved_before(node("worker-1"), "4081.2.0", NOW) == 0


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
