"""Kubernetes quantities ("250m", "1.5Gi"), as exact numbers."""

import math
from decimal import Decimal, InvalidOperation
from functools import lru_cache

_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


@lru_cache(maxsize=4096)
def parse_quantity(text: str | float) -> Decimal:
    """The number a quantity stands for; raises ValueError for anything else."""
    written = str(text)
    number = written.rstrip("numkKMGTPEi")
    try:
        return Decimal(number) * _SUFFIXES[written[len(number) :]]
    except (InvalidOperation, KeyError) as error:
        raise ValueError(f"not a quantity: {written!r}") from error


@lru_cache(maxsize=4096)
def milli(text: str | float) -> int:
    """A CPU quantity in thousandths, rounded up."""
    return math.ceil(parse_quantity(text) * 1000)


@lru_cache(maxsize=4096)
def whole(text: str | float) -> int:
    """A quantity of bytes or pods, rounded up."""
    return math.ceil(parse_quantity(text))
