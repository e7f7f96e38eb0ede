"""Timestamps of the API, held against the clock of the server that wrote them."""

from datetime import UTC, datetime


def seconds_since(stamp: str, now: datetime | None) -> float:
    """How long ago, below 0 for what is still to come; 0 where the timestamp cannot be read, or the time is unknown."""
    if now is None:
        return 0.0
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return 0.0
    return (now - (moment if moment.tzinfo else moment.replace(tzinfo=UTC))).total_seconds()
