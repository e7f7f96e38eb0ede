"""Times as people type them: a duration from now, or a moment."""

from datetime import UTC, datetime, timedelta

from rollout.errors import UsageError
from rollout.model.memory import moment
from rollout.model.quantity import Duration


def written_time(value: str) -> str:
    """Return a duration or a time, which may be empty, as it was written."""
    written = value.strip()
    if written and not moment(written):
        try:
            Duration.parse(written)
        except UsageError as error:
            hint = "Write a duration (8h, 2d), or a time: 2026-11-23T06:00Z."
            raise ValueError(f"{value!r} is neither a duration nor a time. {hint}") from error
    return written


def time_meant(written: str, now: datetime, flag: str) -> datetime | None:
    """Return the time that is meant by a duration from `now`, or by a time; None where nothing is written."""
    if not written:
        return None
    time = moment(written)
    try:
        meant = time.astimezone(UTC) if time else now + timedelta(seconds=Duration.parse(written))
    except OverflowError as error:
        raise UsageError(f"{flag}: {written!r} is beyond the calendar", hint="The last year is 9999.") from error
    if meant <= now:
        raise UsageError(f"{flag}: {written!r} is over already", hint=f"It is {now:%Y-%m-%dT%H:%M}Z now.")
    return meant
