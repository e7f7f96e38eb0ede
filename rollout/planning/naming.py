"""The order in which people expect names: worker-2 before worker-10."""

import re

_NUMBER = re.compile(r"(\d+)")


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key that compares runs of digits as numbers."""
    return tuple((0, int(part), part) if part.isdigit() else (1, 0, part) for part in _NUMBER.split(name) if part)
