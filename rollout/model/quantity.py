"""Durations and counts as operators write them.

Both are written as they can be read again, without loss: a saved plan means what the flag meant
that made it.
"""

import re
from decimal import Decimal
from typing import Annotated, Self

from msgspec import Meta

from rollout.errors import UsageError

# nanoseconds, as Go counts; both letters that look like a mu are one; days are ours
_UNITS = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,
    "\u03bcs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}
_SECOND = 10**9
_PART = re.compile(rf"([0-9]+\.?[0-9]*|\.[0-9]+)({'|'.join(_UNITS)})")
_WHOLE = re.compile(rf"\+?(?:0|(?:{_PART.pattern})+)")
# of a second, from coarse to fine: a fraction is written in the first that it is a whole number of
_FRACTIONS = (("ms", 10**3), ("us", 10**6), ("ns", 10**9))
_COUNT = re.compile(r"(\d+)(%?)")
# what a Lease can say of its duration, an API server of a grace period; and no clock or lock takes
# 300 years
LONGEST = 2**31 - 1
Number = Annotated[int, Meta(ge=0, le=LONGEST)]
"""What a document may say how many there are, or how many seconds."""


class Duration(float):
    """Seconds, written as in Kubernetes: `90s`, `10m`, `1h30m`, and whatever else Go reads as a duration, or `2d`."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a written duration; `UsageError` says what is wrong with it."""
        written = text.strip()
        if not _WHOLE.fullmatch(written):
            raise UsageError(
                f"{text!r} is not a duration",
                hint="Write it as in Kubernetes: 90s, 10m, 1h30m (0s for none).",
            )
        nanoseconds = sum(Decimal(number) * _UNITS[unit] for number, unit in _PART.findall(written))
        if nanoseconds > LONGEST * _SECOND:
            raise UsageError(
                f"{text!r} is too long",
                hint=f"At most {LONGEST // 3600}h can be waited, which is 68 years.",
            )
        return cls(int(nanoseconds) / _SECOND)

    def __str__(self) -> str:
        """Return what `parse` reads as the same: nothing is rounded away, but what is finer than a nanosecond."""
        if not self.is_integer():
            return self._fraction()
        hours, remainder = divmod(int(self), 3600)
        minutes, seconds = divmod(remainder, 60)
        written = "".join(
            f"{n}{unit}" for n, unit in ((hours, "h"), (minutes, "m"), (seconds, "s")) if n
        )
        return written or "0s"

    __repr__ = __str__

    def _fraction(self) -> str:
        counts = ((round(self * parts), parts, unit) for unit, parts in _FRACTIONS)
        exact = (f"{count}{unit}" for count, parts, unit in counts if count / parts == self)
        return next(exact, f"{round(self * _SECOND)}ns")


class Count(str):
    """A number of nodes, or a percentage of the selected ones: `3`, `25%`."""

    __slots__ = ()

    def __new__(cls, number: int, *, percent: bool = False) -> Self:
        """Return the count as it is written."""
        return super().__new__(cls, f"{number}{'%' if percent else ''}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a written count; `UsageError` says what is wrong with it."""
        match = _COUNT.fullmatch(text.strip())
        if match is None or (match[2] and int(match[1]) > 100):  # noqa: PLR2004 - per cent
            raise UsageError(
                f"{text!r} is not a count", hint="Write a number (3) or a percentage (25%)."
            )
        return cls(int(match[1]), percent=bool(match[2]))

    def of(self, total: int) -> int:
        """Return the number meant among `total` nodes: percentages round down, to at least 1 unless 0%."""
        number = int(self.removesuffix("%"))
        return max(1, total * number // 100) if self.is_share and number else number

    @property
    def is_share(self) -> bool:
        """Whether the total matters."""
        return self.endswith("%")

    @property
    def is_zero(self) -> bool:
        """Whether it allows nothing, of whatever total."""
        return self.of(1) == 0
