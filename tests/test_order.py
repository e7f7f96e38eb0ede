"""The order in which several workers take the tests."""

import subprocess
import sys
from collections.abc import Sequence
from operator import not_

import pytest

from tests.conftest import dealt
from tests.warm import ROOT


def cut(order: Sequence[str], workers: int) -> list[Sequence[str]]:
    """As `--dist worksteal` does at first."""
    shares, begin = list[Sequence[str]](), 0
    for left in range(workers, 0, -1):
        end = begin + (len(order) - begin) // left
        shares.append(order[begin:end])
        begin = end
    return shares


def group_of(item: str) -> str:
    return "" if item.startswith("short") else item.partition("-")[0]


@pytest.mark.parametrize("workers", range(1, 9))
def test_each_group_comes_first_in_a_share(workers: int) -> None:
    names = {7: "A", 40: "B", 41: "C", 60: "machines", 61: "machines", 70: "machines", 99: "D"}
    items = [f"{names.get(number, 'short')}-{number:03}" for number in range(101)]
    order = dealt(items, group_of, workers)
    assert sorted(order) == sorted(items)
    assert [item for item in order if not group_of(item)] == [item for item in items if not group_of(item)]
    shares = [[group_of(item) for item in share] for share in cut(order, workers)]
    assert [share for share in shares if share != sorted(share, key=not_)] == []
    assert sum("machines" in share for share in shares) == 1
    counts = [len(set(share) - {""}) for share in shares]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("workers", [1, 2, 6])
def test_few_tests_are_all_taken(workers: int) -> None:
    for items in ([], ["A-1"], ["short-1"], ["short-1", "A-1", "B-1", "B-2"]):
        assert sorted(dealt(items, group_of, workers)) == sorted(items)


@pytest.mark.slow
def test_what_takes_minutes_is_begun_first() -> None:
    """By each of two workers; no test is run for it."""
    words = [sys.executable, "-m", "pytest", "-v", "--setup-plan", "-p", "no:cacheprovider"]
    told = subprocess.run(
        [*words, "-n", "2", "--dist", "worksteal", "tests/model/test_quantity.py", "tests/stateful"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    begun = [line for line in told.stdout.splitlines() if "::" in line and line.startswith("tests/")]
    assert begun[0].startswith("tests/stateful/")
    assert len(begun) > 50
