"""A program that is forked for a test behaves as one in a fresh interpreter."""

from pathlib import Path

import pytest

from tests.ended import end_of, start


@pytest.mark.parametrize("words", [("status",), ("plan", "--unknown")])
def test_it_says_and_returns_the_same(words: tuple[str, ...], tmp_path: Path) -> None:
    forked, fresh = (end_of(start(tmp_path, {}, words, is_fresh=how)) for how in (False, True))
    assert forked == fresh
