"""Observes hosts early, while the rollout waits for something else.

The step that needs an observation then does not wait for SSH. The last check before a reboot uses
none of these.
"""

from collections.abc import Iterable
from concurrent.futures import Future

from msgspec import Struct, field

from rollout.model.host import HostFacts, HostObservation
from rollout.threads import in_background

# An older observation is not used.
_FRESH_SECONDS = 10.0

Observations = Iterable[tuple[str, HostObservation]]


class _EarlyLook(Struct, frozen=True):
    began: float
    observation: "Future[HostObservation | None]"


class EarlyLooks(Struct, frozen=True):
    """The looks that have begun, by node."""

    _by_node: dict[str, _EarlyLook] = field(default_factory=dict)

    def begin(self, nodes: Iterable[str], observations: Observations, now: float) -> None:
        """Collect the observations of these nodes' hosts in the background."""
        futures: dict[str, Future[HostObservation | None]] = {name: Future() for name in nodes}
        for name, future in futures.items():
            self._by_node[name] = _EarlyLook(now, future)
        in_background(lambda: _fulfill(futures, observations), "early-look")

    def take(self, node: str, now: float) -> HostFacts | None:
        """Wait for the node's look and return it once; None if it gets old or has failed."""
        look = self._by_node.pop(node, None)
        if look is None:
            return None
        fresh_seconds = look.began + _FRESH_SECONDS - now
        if fresh_seconds < 0:
            return None
        try:
            observation = look.observation.result(fresh_seconds)
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
        # Their nodes are observed again.
        for future in futures.values():
            future.set_result(None)
