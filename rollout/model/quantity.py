"""Durations and counts as operators write them.

Both keep their written form, so that a saved plan and the flag that made it read alike.
"""

import re
from dataclasses import dataclass
from typing import Self

from rollout.errors import UsageError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_COUNT = re.compile(r"(\d+)(%?)")
# what a Lease can say of its duration, an API server of a grace period; and no clock or lock takes 300 years
LONGEST = 2**31 - 1


class Duration(float):
    """Seconds, written as in Kubernetes: `90s`, `10m`, `1h30m`."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a written duration; `UsageError` says what is wrong with it."""
        parts = _PART.findall(text.strip())
        if not parts or "".join(number + unit for number, unit in parts) != text.strip():
            raise UsageError(
                f"{text!r} is not a duration",
                hint="Write it as in Kubernetes: 90s, 10m, 1h30m (0s for none).",
            )
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
        if seconds > LONGEST:
            raise UsageError(
                f"{text!r} is too long", hint=f"At most {LONGEST // 3600}h can be waited, which is 68 years."
            )
        return cls(seconds)

    def __str__(self) -> str:
        if self < 1 and self > 0:
            return f"{round(self * 1000)}ms"
        hours, rest = divmod(round(self), 3600)
        minutes, seconds = divmod(rest, 60)
        written = "".join(f"{n}{unit}" for n, unit in ((hours, "h"), (minutes, "m"), (seconds, "s")) if n)
        return written or "0s"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class _CountValue:
    number: int
    percent: bool


class Count:
    """A number of nodes, or a percentage of the selected ones: `3`, `25%`."""

    __slots__ = ("_value",)

    def __init__(self, number: int, *, percent: bool = False) -> None:
        self._value = _CountValue(number, percent)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a written count; `UsageError` says what is wrong with it."""
        match = _COUNT.fullmatch(text.strip())
        if match is None or (match[2] and int(match[1]) > 100):  # noqa: PLR2004 - per cent
            raise UsageError(f"{text!r} is not a count", hint="Write a number (3) or a percentage (25%).")
        return cls(int(match[1]), percent=bool(match[2]))

    def of(self, total: int) -> int:
        """The number meant among `total` nodes: percentages round down, to at least 1 unless 0%."""
        if not self._value.percent:
            return self._value.number
        return max(1, total * self._value.number // 100) if self._value.number else 0

    @property
    def is_zero(self) -> bool:
        """Whether it allows nothing, of whatever total."""
        return self._value.number == 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Count) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __str__(self) -> str:
        return f"{self._value.number}{'%' if self._value.percent else ''}"

    def __repr__(self) -> str:
        return f"Count({self!s})"
