import os
from datetime import tzinfo
from zoneinfo import ZoneInfo

from msgspec import Struct

from rollout.adapters.calendar.lines import Block, CalendarError, ContentLine
from rollout.adapters.calendar.repeats import read_rule
from rollout.errors import UsageError
from rollout.planning.eligibility.windows import check_zone

_CALENDAR_ZONE = "X-WR-TIMEZONE"
_PARTS = ("STANDARD", "DAYLIGHT")
_INVALID_DEFINITION = (ValueError, TypeError, LookupError, AttributeError, OverflowError)


class Zones(Struct, frozen=True):
    """The time zones that a file may name."""

    # The zone of times that name none.
    of_calendar: tzinfo
    defined_in_file: frozenset[str]


def read_zones(calendar: Block, default_zone: str) -> Zones:
    """Return a calendar's zones, or raise `CalendarError`.

    A single definition is the calendar's zone, as in Outlook's files. Without one it is the
    default, or if empty, this machine's.
    """
    blocks = [block for block in calendar.blocks if block.name == "VTIMEZONE"]
    defined_in_file = _register(blocks)
    line = calendar.one(_CALENDAR_ZONE)
    if line is None and len(blocks) == 1:
        line = blocks[0].one("TZID")
    if line:
        return Zones(_find_zone(line, defined_in_file), defined_in_file)
    return Zones(ZoneInfo(default_zone) if default_zone else _zone_of_machine(), defined_in_file)


def _zone_of_machine() -> tzinfo:
    from dateutil.tz import gettz, tzlocal, tzstr  # noqa: PLC0415 - slow to import

    written = os.environ.get("TZ", "").removeprefix(":")
    zone: tzinfo | None
    try:
        zone = gettz(written)
    except (ValueError, OSError, Warning):
        zone = None
    # Valid in POSIX, but dateutil may not know it: <+0330>-3:30.
    if not written or written.startswith("<"):
        return zone or tzlocal()
    # C takes any word as an abbreviation, and dateutil follows.
    if zone is None or isinstance(zone, tzlocal):
        raise UsageError(
            f"the variable TZ is {written!r}, which is not a time zone",
            hint="Use a name from the IANA time zone database, such as TZ=Europe/Berlin.",
        )
    # dateutil reads UTC+3 the other way round.
    return tzstr(written, posix_offset=True) if isinstance(zone, tzstr) else zone


def _find_zone(line: ContentLine, defined_in_file: frozenset[str]) -> tzinfo:
    from icalendar.timezone import tzp  # noqa: PLC0415 - slow to import

    name = line.value.strip().strip("/")
    zone = tzp.timezone(name) if is_known_zone(name, defined_in_file) else None
    if zone is None:
        line.refuse(f"the time zone {name!r} is not known")
    return zone


def _register(blocks: list[Block]) -> frozenset[str]:
    """Replace the zones that icalendar knows; return their names."""
    from icalendar import Timezone, use_zoneinfo  # noqa: PLC0415 - slow to import

    use_zoneinfo()  # type: ignore[no-untyped-call]
    names = set[str]()
    for block in blocks:
        line = block.one("TZID")
        if line is None:
            block.refuse("it has no TZID")
        name = line.value.strip("/")
        with block.blamed_for_timeout():
            _check_parts(block)
            if _is_in_database(name):
                continue
        if name in names:
            line.refuse("the time zone is defined twice")
        with block.blamed_for_timeout():
            try:
                Timezone.from_ical(block.text())
            except _INVALID_DEFINITION as error:
                why = f"the time zone {line.value!r} is invalid: {error}"
                raise CalendarError(block.number, why) from error
        names.add(name)
    return frozenset(names)


def _check_parts(block: Block) -> None:
    for part in block.blocks:
        if part.name not in _PARTS:
            part.refuse("a VTIMEZONE cannot contain this component")
        for name in ("DTSTART", "TZOFFSETFROM", "TZOFFSETTO"):
            if part.one(name) is None:
                part.refuse(f"it has no {name}")
        for rule in part.all("RRULE"):
            read_rule(rule, ("YEARLY",))
        for rule in part.all("EXRULE"):
            rule.refuse("EXRULE is not supported")
    if not block.blocks:
        block.refuse("it has neither STANDARD nor DAYLIGHT")


def is_known_zone(name: str, defined_in_file: frozenset[str]) -> bool:
    """Whether the file may name this zone."""
    from icalendar.timezone import windows_to_olson  # noqa: PLC0415 - slow to import

    is_windows_name = name in windows_to_olson.WINDOWS_TO_OLSON
    return name in defined_in_file or is_windows_name or _is_in_database(name)


def _is_in_database(name: str) -> bool:
    try:
        check_zone(name)
    except UsageError:
        return False
    return True
