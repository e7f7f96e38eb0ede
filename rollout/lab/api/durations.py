"""How long ago something was, the way Kubernetes tools write it in tables."""

from datetime import UTC, datetime

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_YEAR = 365 * _DAY


def age(timestamp: str | None, now: datetime) -> str:
    """The age of a timestamp: `42s`, `3m10s`, `2d5h`; `<unknown>` where there is none."""
    moment = parse_time(timestamp)
    return "<unknown>" if moment is None else human_duration((now - moment).total_seconds())


def parse_time(timestamp: str | None) -> datetime | None:
    """A timestamp of the API, with or without fractions of a second."""
    if not timestamp:
        return None
    moment = datetime.fromisoformat(timestamp)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def human_duration(seconds: float) -> str:
    """At most two units, the second only while it still says something; the thresholds are Kubernetes' own."""
    whole = int(seconds)
    if whole < 0:
        return "0s"
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 3 * _HOUR:
        return _minutes(whole)
    if whole < 8 * _DAY:
        return _hours(whole)
    return _days(whole)


def _minutes(whole: int) -> str:
    minutes, seconds = divmod(whole, _MINUTE)
    shown = minutes < 10  # noqa: PLR2004 - from ten minutes on, seconds are noise
    return f"{minutes}m{seconds}s" if shown and seconds else f"{minutes}m"


def _hours(whole: int) -> str:
    hours, rest = divmod(whole, _HOUR)
    minutes = rest // _MINUTE
    if whole < 8 * _HOUR:
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    if whole < 2 * _DAY:
        return f"{hours}h"
    days, rest_hours = divmod(hours, 24)
    return f"{days}d{rest_hours}h" if rest_hours else f"{days}d"


def _days(whole: int) -> str:
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    years, rest = divmod(whole, _YEAR)
    days = rest // _DAY
    return f"{years}y{days}d" if days and whole < 8 * _YEAR else f"{years}y"
