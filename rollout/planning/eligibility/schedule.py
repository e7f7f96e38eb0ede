"""When nodes may be begun: within the windows, at any time without any, and never in a freeze."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Self

from rollout.model.gates import WindowPolicy
from rollout.model.policy import Policy
from rollout.model.text import shortened
from rollout.planning.eligibility.windows import Opening, Period, Window, join, parse_freeze

OUTSIDE = "outside the maintenance window"
# Days that are looked ahead: of weekly windows, of monthly ones, and of those with dates.
_AHEAD = (9, 62, 800)
# A window lasts a week at most.
_BACK = timedelta(days=9)
_NAMED = 2


@dataclass(frozen=True, slots=True)
class Schedule:
    """Windows, and freezes, which win over them; `written` are the freezes' texts, `own` the windows of a pool."""

    windows: tuple[Period, ...] = ()
    freezes: tuple[Period, ...] = ()
    written: tuple[str, ...] = ()
    own: tuple[Period, ...] = ()

    @classmethod
    def of(cls, policy: WindowPolicy) -> Self:
        """Read what the rules say; `UsageError` where that cannot be read."""
        windows, freezes = map(Window.parse, policy.windows), map(parse_freeze, policy.freezes)
        return cls(tuple(windows), tuple(freezes), policy.freezes)

    def in_pool(self, policy: Policy, pool: str) -> Self:
        """Return the same for the nodes of a pool, which begin within its own windows as well."""
        written = next((rules.window for rules in policy.pools if rules.name == pool), ())
        return replace(self, own=tuple(map(Window.parse, written)))

    def __bool__(self) -> bool:
        """Whether nodes may not begin at any time."""
        return bool(self.windows or self.freezes or self.own)

    def current(self, now: datetime) -> Opening | None:
        """Return the opening that `now` lies in, with those that follow it without a gap; None where none may begin."""
        return next((opening for opening in self._around(now, _AHEAD[0]) if opening.holds(now)), None)

    def following(self, now: datetime) -> Opening | None:
        """Return the next opening that begins after `now`; None where none does in two years."""
        return self._first(now, lambda opening: opening.begin > now)

    def fits_ever(self, now: datetime, seconds: float) -> bool:
        """Whether any opening of two years ahead is long enough for something that takes so many seconds."""
        return self._first(now, lambda opening: (opening.end - opening.begin).total_seconds() >= seconds) is not None

    def next_freeze(self, now: datetime) -> Opening | None:
        """Return the freeze that begins next."""
        return Schedule(windows=self.freezes).following(now) if self.freezes else None

    def freezing(self, now: datetime) -> tuple[str, ...]:
        """Return the freezes that `now` lies in, as written."""
        return tuple(
            text
            for text, freeze in zip(self.written, self.freezes, strict=True)
            if any(opening.holds(now) for opening in _near([freeze], now - _BACK, now))
        )

    def closed(self, now: datetime) -> str:
        """Why no node may be started now, and when one may again; empty where one may."""
        return "" if not self or self.current(now) else f"{self.why_closed(now)}; {self.until(now)}"

    def why_closed(self, now: datetime) -> str:
        """Return what keeps nodes from being started at a moment at which none may be."""
        frozen = self.freezing(now)
        return f"frozen ({shortened(frozen, _NAMED)})" if frozen else OUTSIDE

    def until(self, now: datetime) -> str:
        """When nodes may be started again."""
        upcoming = self.following(now)
        if upcoming is None:
            return "nothing opens in the next two years"
        return f"the next opens {self.written_time(upcoming.begin)}"

    def written_time(self, moment: datetime) -> str:
        """Return a moment in the clocks of the first window, or freeze."""
        zone = (*self.own, *self.windows, *self.freezes)[0].zone
        return f"{moment.astimezone(zone):%a %Y-%m-%d %H:%M %Z}"

    def ahead(self, now: datetime) -> list[Opening]:
        """Return the openings of two years ahead, with the one that `now` lies in."""
        return [opening for opening in self._around(now, _AHEAD[-1]) if opening.end > now]

    def openings(self, begin: datetime, end: datetime) -> list[Opening]:
        """All openings around these two moments, those that touch made one, without what is frozen of them."""
        start = begin - _BACK
        opened = _near(self.windows, start, end) if self.windows else [Opening(start, end)]
        if self.own:
            # what is open in both is what is left without that which is closed in one
            opened = _cut(opened, _cut(opened, _near(self.own, start, end)))
        return _cut(opened, _near(self.freezes, start - _BACK, end + _BACK))

    def _around(self, now: datetime, days: int) -> list[Opening]:
        return self.openings(now, now + timedelta(days=days))

    def _first(self, now: datetime, wanted: Callable[[Opening], bool]) -> Opening | None:
        """Return the first opening of those around and after `now`, looked for ever further ahead."""
        openings = (opening for days in _AHEAD for opening in self._around(now, days))
        return next(filter(wanted, openings), None)


def _near(periods: Iterable[Period], begin: datetime, end: datetime) -> list[Opening]:
    """Return their openings that begin on these days, by the clocks of each, those that touch made one."""
    return join(opening for period in periods for opening in period.openings(begin, end))


def _cut(openings: Iterable[Opening], away: Sequence[Opening]) -> list[Opening]:
    """Return what is left of them between these stretches, which are in order."""
    return [part for opening in openings for part in _without(opening, away)]


def _without(opening: Opening, frozen: Sequence[Opening]) -> Iterator[Opening]:
    """Yield what is left of it between these stretches, which are in order."""
    begin = opening.begin
    for freeze in frozen:
        if begin < freeze.begin < opening.end:
            yield Opening(begin, freeze.begin)
        if freeze.begin < opening.end:
            begin = max(begin, freeze.end)
    if begin < opening.end:
        yield Opening(begin, opening.end)
