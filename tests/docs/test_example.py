"""The report that the documents show is what this code makes of its journal: `python -m tests.docs.example`."""

import pytest

from tests.docs.example import EXAMPLE, LARGEST, made


@pytest.mark.usefixtures("utc")
def test_the_example_is_that_of_this_code() -> None:
    assert EXAMPLE.read_text(encoding="utf-8") == made(), "make it anew: python -m tests.docs.example"
    assert EXAMPLE.stat().st_size < LARGEST
