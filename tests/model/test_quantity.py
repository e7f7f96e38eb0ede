import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.errors import UsageError
from rollout.model.quantity import Count, Duration


@pytest.mark.parametrize(
    ("text", "seconds", "written"),
    [
        ("90s", 90, "1m30s"),
        ("10m", 600, "10m"),
        ("1h30m", 5400, "1h30m"),
        ("0s", 0, "0s"),
        ("500ms", 0.5, "500ms"),
        ("1.5h", 5400, "1h30m"),
        ("1d", 86400, "24h"),
        ("0", 0, "0s"),
        ("+0", 0, "0s"),
        ("+5m", 300, "5m"),
        (".5h", 1800, "30m"),
        ("1.h", 3600, "1h"),
        ("1500ms", 1.5, "1500ms"),
        ("1.5s", 1.5, "1500ms"),
        ("1m0.25s", 60.25, "60250ms"),
        ("250us", 0.00025, "250us"),
        ("250\u00b5s", 0.00025, "250us"),
        ("250\u03bcs", 0.00025, "250us"),
        ("100ns", 0.0000001, "100ns"),
        ("0.3s", 0.3, "300ms"),
        ("0.1ns", 0, "0s"),
        ("999h0.001s", 3596400.001, "3596400001ms"),
    ],
)
def test_durations(text: str, seconds: float, written: str) -> None:
    assert Duration.parse(text) == seconds
    assert str(Duration.parse(text)) == written
    assert Duration.parse(written) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "10", "ten", "10x", "-5m", "5m!", "m", "1h 30m", "+", ".", ".h", "5", "00", "++5m", "5m+", "1e3s", "\u0665m"],
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration"):
        Duration.parse(text)


@given(st.integers(min_value=0, max_value=2**31 - 1), st.sampled_from([("ns", 9), ("us", 6), ("ms", 3), ("s", 0)]))
def test_no_duration_changes_by_being_written(number: int, unit: tuple[str, int]) -> None:
    read = Duration.parse(f"{number}{unit[0]}")
    assert read == number / 10 ** unit[1]
    assert Duration.parse(str(read)) == read


@pytest.mark.parametrize(
    ("text", "total", "meant"),
    [("3", 10, 3), ("25%", 10, 2), ("25%", 3, 1), ("100%", 10, 10), ("0", 10, 0), ("0%", 10, 0), ("39%", 10, 3)],
)
def test_counts(text: str, total: int, meant: int) -> None:
    assert Count.parse(text).of(total) == meant
    assert str(Count.parse(text)) == text


@pytest.mark.parametrize("text", ["", "-1", "101%", "3.5", "all", "%"])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(UsageError, match="is not a count"):
        Count.parse(text)
