from datetime import UTC, datetime

from msgspec import Struct

_EDGE_YEARS = (1, 9999)


class Interval(Struct, frozen=True, order=True):
    """A time interval."""

    begin: datetime
    # Exclusive.
    end: datetime

    @property
    def seconds(self) -> float:
        """Return the length."""
        return (self.end - self.begin).total_seconds()

    def includes(self, moment: datetime) -> bool:
        """Whether the moment is inside."""
        return self.begin <= moment < self.end


def parse_timestamp(stamp: str) -> datetime | None:
    """Return the time, in UTC without a zone; None if invalid."""
    try:
        time = datetime.fromisoformat(stamp)
        aware = time if time.tzinfo else time.replace(tzinfo=UTC)
        if aware.year in _EDGE_YEARS:
            # This raises `OverflowError` unless UTC's year is 1 to 9999.
            aware.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return aware


def seconds_since(stamp: str, now: datetime | None) -> float:
    """Subtract times of one clock; 0 if either is unknown."""
    then = parse_timestamp(stamp)
    if now is None or then is None:
        return 0.0
    return (now - then).total_seconds()


def timestamp(at: datetime) -> str:
    """Return RFC 3339 in UTC, with milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def whole_second(at: datetime) -> str:
    """Return RFC 3339 in UTC, as Kubernetes does."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def elapsed(seconds: float) -> str:
    """Return `45s`, `3m05s` or `1h02m`."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    if minutes:
        return f"{minutes}m{rest:02}s"
    return f"{rest}s"
