"""The arithmetic of disruption budgets, rounding as the real disruption controller does."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rollout.lab.api.store import Json
from rollout.lab.world.objects import spec_of


@dataclass(frozen=True, slots=True)
class Expectation:
    """How many pods a budget expects, and how many of them must be healthy."""

    expected: int
    desired: int


def expectation(budget: Json, pods: int, scales: Sequence[int]) -> Expectation:
    """What follows from `minAvailable` or `maxUnavailable`.

    `pods` is how many pods the selector picks, `scales` the replicas of each of their controllers. Only a
    plain `minAvailable` number counts the pods themselves; both kinds of percentage round up.
    """
    spec = spec_of(budget)
    scale = sum(scales)
    if spec.get("maxUnavailable") is not None:
        return Expectation(scale, max(0, scale - _count(spec["maxUnavailable"], scale)))
    wanted = spec.get("minAvailable", 1)
    if is_percentage(wanted):
        return Expectation(scale, _count(wanted, scale))
    return Expectation(pods, int(wanted))


def needs_scale(budget: Json) -> bool:
    """Whether the controllers' scale decides: for everything but a plain `minAvailable` number."""
    spec = spec_of(budget)
    return spec.get("maxUnavailable") is not None or is_percentage(spec.get("minAvailable", 1))


def is_percentage(value: str | int) -> bool:
    """Whether a count is written as a share."""
    return isinstance(value, str) and value.endswith("%")


def disruptions_allowed(expectation: Expectation, healthy: int) -> int:
    """How many evictions may follow."""
    return max(0, healthy - expectation.desired) if expectation.expected > 0 else 0


def _count(value: str | int, total: int) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(total * int(value[:-1]) / 100)
    return int(value)
