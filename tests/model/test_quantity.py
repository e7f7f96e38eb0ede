import pytest

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
    ],
)
def test_durations(text: str, seconds: float, written: str) -> None:
    assert Duration.parse(text) == seconds
    assert str(Duration.parse(text)) == written
    assert Duration.parse(written) == seconds


@pytest.mark.parametrize("text", ["", "10", "ten", "10x", "-5m", "5m!", "m", "1h 30m"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration"):
        Duration.parse(text)


def test_durations_that_no_clock_can_wait() -> None:
    assert Duration.parse("2147483647s") == float(2**31 - 1)
    for text in ("2147483648s", "99999999999h", "9" * 400 + "d"):
        with pytest.raises(UsageError, match="is too long"):
            Duration.parse(text)


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
