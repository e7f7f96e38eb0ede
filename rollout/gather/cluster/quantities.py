"""Kubernetes quantities: `100m`, `1.5`, `2Gi`, `1e3`."""

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?", re.ASCII)
_DECIMAL = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_BINARY = {suffix: 1 << (10 * power) for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}


def parse_quantity(text: str) -> Decimal:
    """Return the exact number that a quantity writes; ValueError where it is none."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    number, suffix = Decimal(match[1]), match[2] or ""
    if suffix in _BINARY:
        return number * _BINARY[suffix]
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix])
    return number.scaleb(int(suffix[1:]))


@lru_cache(maxsize=4096)
def milli(text: str) -> int:
    """Return a quantity in thousandths, rounded up as the scheduler does."""
    return _ceil(parse_quantity(text) * 1000)


@lru_cache(maxsize=4096)
def whole(text: str) -> int:
    """Return a quantity in whole units, rounded up."""
    return _ceil(parse_quantity(text))


def _ceil(number: Decimal) -> int:
    return int(number.to_integral_value(ROUND_CEILING))
