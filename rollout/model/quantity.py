import re
from decimal import Decimal
from typing import Annotated, Self

from msgspec import Meta

from rollout.errors import UsageError

# In nanoseconds; Go accepts two characters for mu.
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
# Per second.
_FRACTIONS = (("ms", 10**3), ("us", 10**6), ("ns", 10**9))
_COUNT = re.compile(r"(\d+)(%?)")
# The limit of a Lease and a grace period, in seconds.
LONGEST = 2**31 - 1
Number = Annotated[int, Meta(ge=0, le=LONGEST)]
# Never NaN or infinite.
Seconds = Annotated[float, Meta(ge=0, le=LONGEST)]


class Duration(float):
    """Seconds, as in Go (`90s`, `1h30m`) or days (`2d`)."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a text, or raise `UsageError`."""
        if not _WHOLE.fullmatch(text.strip()):
            raise UsageError(
                f"{text!r} is not a duration",
                hint="Write it as in Kubernetes: 90s, 10m, 1h30m (0s for none).",
            )
        nanoseconds = sum(Decimal(number) * _UNITS[unit] for number, unit in _PART.findall(text))
        if nanoseconds > LONGEST * _SECOND:
            raise UsageError(
                f"{text!r} is too long",
                hint=f"The maximum is {LONGEST // 3600}h (68 years).",
            )
        return cls(int(nanoseconds) / _SECOND)

    def __str__(self) -> str:
        if not self.is_integer():
            return self._fraction()
        hours, remainder = divmod(int(self), 3600)
        minutes, seconds = divmod(remainder, 60)
        parts = ((hours, "h"), (minutes, "m"), (seconds, "s"))
        return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"

    __repr__ = __str__

    def _fraction(self) -> str:
        for unit, parts in _FRACTIONS:
            number = round(self * parts)
            if number / parts == self:
                return f"{number}{unit}"
        return f"{round(self * _SECOND)}ns"


class Count(str):
    """A number or a share of nodes: `3`, `25%`."""

    __slots__ = ()

    def __new__(cls, number: int, *, percent: bool = False) -> Self:
        """Return its text."""
        return super().__new__(cls, f"{number}{'%' if percent else ''}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a text, or raise `UsageError`."""
        match = _COUNT.fullmatch(text.strip())
        if match is None or (match[2] and int(match[1]) > 100):  # noqa: PLR2004 - per cent
            raise UsageError(
                f"{text!r} is not a count", hint="Write a number (3) or a percentage (25%)."
            )
        return cls(int(match[1]), percent=bool(match[2]))

    def of(self, total: int) -> int:
        """Round percentages down, but to at least 1 above 0%."""
        number = int(self.removesuffix("%"))
        if self.is_share and number:
            return max(1, total * number // 100)
        return number

    @property
    def is_share(self) -> bool:
        """Whether it is a percentage."""
        return self.endswith("%")

    @property
    def is_zero(self) -> bool:
        """Whether it is 0 or 0%."""
        return self.of(1) == 0
