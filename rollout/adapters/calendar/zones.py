"""The time zones of an iCalendar file: from the IANA database, Windows or the file."""

from dataclasses import dataclass, replace
from datetime import tzinfo

from rollout.adapters.calendar.lines import Block, CalendarError, ContentLine, TimeLimit
from rollout.adapters.calendar.repeats import read_rule
from rollout.errors import UsageError
from rollout.planning.eligibility.windows import check_zone

_CALENDAR_ZONE = "X-WR-TIMEZONE"
_PARTS = ("STANDARD", "DAYLIGHT")
# Raised by icalendar and dateutil.
_INVALID_DEFINITION = (ValueError, TypeError, LookupError, AttributeError, OverflowError)


@dataclass(frozen=True, slots=True)
class Zones:
    """The time zones that a file may name."""

    # The zone of times that name none.
    of_calendar: tzinfo
    # Defined by the file itself.
    defined: frozenset[str]

    def has(self, name: str) -> bool:
        """Whether the time zone is known."""
        from icalendar.timezone import windows_to_olson  # noqa: PLC0415 - slow to import

        name = name.strip("/")
        return (
            name in self.defined
            or name in windows_to_olson.WINDOWS_TO_OLSON
            or _is_in_database(name)
        )


def read_zones(calendar: Block, time_limit: TimeLimit, default: tzinfo) -> Zones:
    """Return a calendar's zones, or raise `CalendarError`.

    A single definition is the calendar's own zone: Outlook defines only its events'. Without a zone
    it has the `default`.
    """
    blocks = [block for block in calendar.blocks if block.name == "VTIMEZONE"]
    zones = Zones(default, _register(blocks, time_limit))
    line = calendar.one(_CALENDAR_ZONE)
    if line is None and len(blocks) == 1:
        line = blocks[0].one("TZID")
    return replace(zones, of_calendar=_find_zone(line, zones)) if line else zones


def _find_zone(line: ContentLine, zones: Zones) -> tzinfo:
    from icalendar.timezone import tzp  # noqa: PLC0415 - slow to import

    name = line.value.strip().strip("/")
    zone = tzp.timezone(name) if zones.has(name) else None
    if zone is None:
        line.refuse(f"the time zone {name!r} is not known")
    return zone


def _register(blocks: list[Block], time_limit: TimeLimit) -> frozenset[str]:
    """Register this file's zones with icalendar, not other files'; return the names."""
    from icalendar import Timezone, use_zoneinfo  # noqa: PLC0415 - slow to import

    use_zoneinfo()  # type: ignore[no-untyped-call]
    names = set[str]()
    for block in blocks:
        time_limit.check(block)
        line = block.one("TZID")
        if line is None:
            block.refuse("a time zone without TZID")
        _check_parts(block)
        name = line.value.strip("/")
        if _is_in_database(name):
            continue
        if name in names:
            line.refuse("the time zone is defined twice")
        try:
            Timezone.from_ical(block.text())
        except _INVALID_DEFINITION as error:
            why = f"the time zone {line.value!r} is not understood: {error}"
            raise CalendarError(block.number, why) from error
        names.add(name)
    return frozenset(names)


def _check_parts(block: Block) -> None:
    for part in block.blocks:
        if part.name not in _PARTS:
            part.refuse("a time zone has no such part")
        for name in ("DTSTART", "TZOFFSETFROM", "TZOFFSETTO"):
            if part.one(name) is None:
                part.refuse(f"a part of a time zone without {name}")
        for rule in part.all("RRULE"):
            read_rule(rule, ("YEARLY",))
        for rule in part.all("EXRULE"):
            rule.refuse("it is not understood")
    if not block.blocks:
        block.refuse("a time zone without STANDARD or DAYLIGHT")


def _is_in_database(name: str) -> bool:
    try:
        check_zone(name)
    except UsageError:
        return False
    return True
