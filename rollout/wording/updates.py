"""Why a host finds no updates, in words."""

from datetime import datetime
from typing import assert_never

from rollout.model.host import UpdateStanding
from rollout.model.text import counted
from rollout.model.timestamps import elapsed, seconds_since
from rollout.model.update_checks import CheckState, service_text

_DAY = 86_400


def check_trouble(update: UpdateStanding, now: datetime | None) -> str:
    """Return why the host finds no updates; empty if it looks for them, or does not say."""
    match update.checks:
        case CheckState.MASKED | CheckState.STOPPED | CheckState.FAILED:
            return service_text(update.check_unit, update.checks)
        case CheckState.STALE:
            return _last_check(update, now)
        case CheckState.WORKING | CheckState.UNKNOWN:
            return ""
        case _:
            assert_never(update.checks)


def _last_check(update: UpdateStanding, now: datetime | None) -> str:
    if not update.last_checked:
        return f"{update.check_unit} has not completed a check since it started"
    if now is None:
        return f"last checked at {update.last_checked}"
    seconds = seconds_since(update.last_checked, now)
    ago = counted(int(seconds // _DAY), "day") if seconds >= _DAY else elapsed(seconds)
    return f"last checked {ago} ago"
