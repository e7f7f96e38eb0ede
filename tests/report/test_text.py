import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.model.text import counted, elapsed, listed, printable, shortened, version_step


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("größer, 日本", "größer, 日本"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("\x9b2J", "\\x9b2J"),
        ("a\nb\tc\r", "a b c "),
        ("user\u202egnp.exe", "user\\u202egnp.exe"),
        ("\u200b", "\\u200b"),
        ("bell\a", "bell\\x07"),
        ("\ud800", "\\ud800"),
    ],
)
def test_foreign_text_is_made_safe(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_nothing_unprintable_is_left(text: str) -> None:
    shown = printable(text)
    assert "\x1b" not in shown
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in shown)
    assert printable(shown) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-3, "0s"), (0.4, "0s"), (59.4, "59s"), (61, "1m01s"), (600, "10m00s"), (3661, "1h01m")],
)
def test_stretches_of_time(seconds: float, shown: str) -> None:
    assert elapsed(seconds) == shown


def test_pieces() -> None:
    assert counted(1, "node") == "1 node"
    assert counted(0, "wave") == "0 waves"
    assert version_step("1.2", "") == "1.2 → ?"
    assert shortened(["a", "b", "c"], most=2) == "a, b and 1 more"
    assert shortened(["a", "b"], most=2) == "a, b"
    assert shortened(["a", "b", "c"], most=2, separator=" and ") == "a and b and 1 more"
    assert listed(["a", "b"], 2) == "a; b"
    assert listed(["a", "b", "c"], 2) == "a; b; and 1 more"
