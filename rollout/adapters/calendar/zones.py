"""The timezones of an iCalendar file: of the IANA database, by Windows' names, or defined by the file itself."""

from dataclasses import dataclass, replace
from datetime import tzinfo

from rollout.adapters.calendar.lines import Block, CalendarError, ContentLine, Patience
from rollout.adapters.calendar.repeats import read_rule
from rollout.errors import UsageError
from rollout.planning.eligibility.windows import check_zone

_OF_CALENDAR = "X-WR-TIMEZONE"
_PARTS = ("STANDARD", "DAYLIGHT")


@dataclass(frozen=True, slots=True)
class Zones:
    """The timezones that a file may name; `of_calendar` is that of times and days which name none."""

    of_calendar: tzinfo
    defined: frozenset[str]

    def has(self, name: str) -> bool:
        """Whether it is known what the name means."""
        from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON  # noqa: PLC0415 - where there is a calendar

        name = name.strip("/")
        return name in self.defined or name in WINDOWS_TO_OLSON or _is_in_database(name)


def read_zones(calendar: Block, patience: Patience, default: tzinfo) -> Zones:
    """Return the timezones of a calendar; `CalendarError` for a definition that is not understood.

    `default` is the calendar's timezone if it names none. Outlook names none, but defines the
    timezone of its events, so the only definition in a file is the calendar's timezone.
    """
    blocks = [block for block in calendar.blocks if block.name == "VTIMEZONE"]
    zones = Zones(default, _define(blocks, patience))
    line = calendar.one(_OF_CALENDAR)
    if line is None and len(blocks) == 1:
        line = blocks[0].one("TZID")
    return replace(zones, of_calendar=_zone(line, zones)) if line else zones


def _zone(line: ContentLine, zones: Zones) -> tzinfo:
    from icalendar.timezone import tzp  # noqa: PLC0415 - where there is a calendar

    name = line.value.strip().strip("/")
    zone = tzp.timezone(name) if zones.has(name) else None
    if zone is None:
        line.refuse(f"the timezone {name!r} is not known")
    return zone


def _define(blocks: list[Block], patience: Patience) -> frozenset[str]:
    """Have icalendar know the timezones of this file, and none of a file that was read before."""
    from icalendar import Timezone, use_zoneinfo  # noqa: PLC0415 - where there is a calendar

    use_zoneinfo()  # type: ignore[no-untyped-call]
    names = set[str]()
    for block in blocks:
        patience.check(block)
        line = block.one("TZID")
        if line is None:
            block.refuse("a timezone without TZID")
        _check_parts(block)
        if _is_in_database(line.value.strip("/")):
            continue
        if line.value.strip("/") in names:
            line.refuse("the timezone is defined twice")
        try:
            Timezone.from_ical(block.text())
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            IndexError,
            OverflowError,
        ) as error:
            # what icalendar and dateutil meet in a definition that no program has written
            raise CalendarError(
                block.number, f"the timezone {line.value!r} is not understood: {error}"
            ) from error
        names.add(line.value.strip("/"))
    return frozenset(names)


def _check_parts(block: Block) -> None:
    for part in block.blocks:
        if part.name not in _PARTS:
            part.refuse("a timezone has no such part")
        for name in ("DTSTART", "TZOFFSETFROM", "TZOFFSETTO"):
            if part.one(name) is None:
                part.refuse(f"a part of a timezone without {name}")
        for rule in part.all("RRULE"):
            read_rule(rule, ("YEARLY",))
        for rule in part.all("EXRULE"):
            rule.refuse("it is not understood")
    if not block.blocks:
        block.refuse("a timezone without STANDARD or DAYLIGHT")


def _is_in_database(name: str) -> bool:
    try:
        check_zone(name)
    except UsageError:
        return False
    return True
