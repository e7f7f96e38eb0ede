"""`rollout demo`."""


def demo() -> None:
    """Placeholder."""
