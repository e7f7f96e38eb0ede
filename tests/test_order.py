"""The order in which several workers take the tests."""

import subprocess
import sys
from collections.abc import Sequence

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


@pytest.mark.parametrize("workers", range(1, 9))
def test_each_long_one_comes_first_in_a_share(workers: int) -> None:
    items = [f"{'LONG' if number % 30 == 29 else 'short'}-{number:03}" for number in range(101)]
    order = dealt(items, lambda item: item.startswith("LONG"), workers)
    assert sorted(order) == sorted(items)
    assert [item for item in order if item.startswith("short")] == [item for item in items if "LONG" not in item]
    shares = [[item[:1] for item in share] for share in cut(order, workers)]
    assert [share for share in shares if share != sorted(share)] == []
    counts = [share.count("L") for share in shares]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("workers", [1, 2, 6])
def test_few_tests_are_all_taken(workers: int) -> None:
    for items in ([], ["LONG"], ["short"], ["short", "LONG-1", "LONG-2", "LONG-3"]):
        assert sorted(dealt(items, lambda item: item.startswith("LONG"), workers)) == sorted(items)


def test_what_takes_minutes_is_not_begun_last() -> None:
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    told = subprocess.run(
        [*words, "tests/model", "tests/operate/test_week.py", "tests/stateful"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.split("::")[0] for line in told.stdout.splitlines()[:3]] == [
        "tests/operate/test_week.py",
        *["tests/stateful/test_stateful.py"] * 2,
    ]
