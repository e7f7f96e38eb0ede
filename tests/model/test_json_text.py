import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.model.json_text import json_document, json_line
from rollout.model.text import UNSAFE_CATEGORIES


@pytest.mark.slow
@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_means_the_same_and_steers_no_terminal(value: object) -> None:
    line = json_line(value).decode()
    assert json.loads(line) == json.loads(json_document(value)) == value
    assert not [char for char in line if unicodedata.category(char) in UNSAFE_CATEGORIES]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a\u009b2J", r'"a\u009b2J"'),
        ("\x7f", r'"\u007f"'),
        ("\u202egnp", r'"\u202egnp"'),
        ("\U000e0041", r'"\udb40\udc41"'),
        ("3975.2.0 → 4081.2.1 · ä", '"3975.2.0 → 4081.2.1 · ä"'),
    ],
)
def test_what_is_escaped_and_what_is_not(text: str, written: str) -> None:
    assert json_line(text).decode() == written
    assert json_document([text]).decode() == f"[\n  {written}\n]\n"
