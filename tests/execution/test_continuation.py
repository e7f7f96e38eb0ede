"""What is left of a rollout's rules once a part of it has been done."""

import pytest

from rollout.execution.record.record import StandingRecord
from rollout.execution.record.unfinished import Begun, Unfinished
from rollout.execution.rollout.continuation import counted_failures
from rollout.model.plan import PlannedNode
from rollout.model.progress import Phase
from rollout.model.quantity import Count
from rollout.planning.continuation import remaining_ramp


@pytest.mark.parametrize(
    ("sizes", "taken", "left"),
    [
        ((), 3, ()),
        ((1, 3, 10), 0, (1, 3, 10)),
        ((1, 3, 10), -1, (1, 3, 10)),
        ((1, 3, 10), 1, (3, 10)),
        ((1, 3, 10), 2, (2, 10)),
        ((1, 3, 10), 4, (10,)),
        ((1, 3, 10), 40, (10,)),
    ],
)
def test_a_ramp_goes_on_from_where_it_was(sizes: tuple[int, ...], taken: int, left: tuple[int, ...]) -> None:
    assert remaining_ramp(sizes, taken) == tuple(map(Count, left))


def failed(name: str, run: str = "this") -> Begun:
    return Begun(PlannedNode(name, "", "", "", "", 0, 0), Phase.FAILED, run, cordoned=True)


FOUND = Unfinished(
    StandingRecord("this", "", "", ended=False, plan=None),
    failed=(failed("a"), failed("b", "another")),
    given_back={"c": "drain-failed", "d": "skipped", "e": "rolled-back"},
)


@pytest.mark.parametrize(("limit", "counted"), [(1, 0), (2, 0), (3, 0), (4, 3), (9, 3)])
def test_failures_of_this_run_count_until_they_have_stopped_it(limit: int, counted: int) -> None:
    assert counted_failures(FOUND, limit, retry_failed=False) == counted


def test_those_that_are_tried_again_do_not_count() -> None:
    assert counted_failures(FOUND, 9, retry_failed=True) == 0
