"""What reboot.rescue did, in words."""

from collections.abc import Sequence

from rollout.model.text import joined


def rescue_text(problem: str, output: Sequence[str]) -> str:
    """Return how the command ended; `problem` and `output` as in `CommandEnd`."""
    return joined(": ", problem or "reboot.rescue succeeded", "; ".join(output))
