"""The guard that every act asks first: whether this process still holds the right to act."""

from typing import Protocol


class Guard(Protocol):
    """Says whether this process may act."""

    def check(self) -> None:
        """Return while it may; `FencedError` where it may not."""
        ...
