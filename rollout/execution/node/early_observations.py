"""Observes hosts early, so that later steps do not wait.

The last check before a reboot uses none of these observations.
"""

from collections.abc import Iterable
from concurrent.futures import Future

from msgspec import Struct, field

from rollout.model.host import HostFacts, HostObservation
from rollout.threads import in_background

_FRESH_SECONDS = 10.0

Observations = Iterable[tuple[str, HostObservation]]


class _EarlyObservation(Struct, frozen=True):
    # In monotonic seconds.
    began: float
    future: "Future[HostObservation | None]"


class EarlyObservations(Struct, frozen=True):
    _by_node: dict[str, _EarlyObservation] = field(default_factory=dict)

    def start(self, nodes: Iterable[str], observations: Observations, now: float) -> None:
        """A thread iterates over the `observations`."""
        futures: dict[str, Future[HostObservation | None]] = {name: Future() for name in nodes}
        for name, future in futures.items():
            self._by_node[name] = _EarlyObservation(now, future)
        in_background(lambda: _fulfill(futures, observations), "early-look")

    def take(self, node: str, now: float) -> HostFacts | None:
        """Return the observation once; None unless it is fresh and succeeded."""
        early = self._by_node.pop(node, None)
        if early is None:
            return None
        fresh_seconds = early.began + _FRESH_SECONDS - now
        if fresh_seconds < 0:
            return None
        try:
            observation = early.future.result(fresh_seconds)
        except TimeoutError:
            return None
        return observation if isinstance(observation, HostFacts) else None


def _fulfill(
    futures: "dict[str, Future[HostObservation | None]]", observations: Observations
) -> None:
    try:
        for name, observation in observations:
            futures.pop(name).set_result(observation)
    finally:
        for future in futures.values():
            future.set_result(None)
