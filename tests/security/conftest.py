"""What the attacks start: labs, and the real program on them."""

from tests.apply.conftest import rollout, started

__all__ = ["rollout", "started"]
