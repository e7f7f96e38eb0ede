"""Simulate which pods a Deployment starts and ends after a restart.

Sources: Kubernetes' Deployment controller, and ActivePodsWithRanks.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from rollout.model.cluster import Pod

_NANOSECONDS = 1_000_000_000
# When pods of the rollout's start became ready.
_LONG_AGO = -1_000_000_000


@dataclass(slots=True)
class PlayedUpdate:
    """The pods of a Deployment whose restart ends no pod before a new one is ready.

    Each restart makes all pods old and starts new ones. `old` and `new` have no terminating pods.
    """

    desired: int
    surge: int
    # At the rollout's start.
    pods: Sequence[Pod]
    # By UID.
    old: dict[str, Pod] = field(default_factory=dict)
    new: dict[str, Pod] = field(default_factory=dict)
    _restarts: int = 0
    _started: int = 0
    # How many restarts there had been when each pod started, by UID; 0 for others.
    _restarts_before: dict[str, int] = field(default_factory=dict)
    # By UID; None until ready. Pods of the rollout's start are not listed.
    _ready_at: dict[str, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.new.update((pod.uid, pod) for pod in self.pods)

    def ensure_replaced(self, pod: Pod) -> None:
        if pod.uid in self.new:
            self.old |= self.new
            self.new = {}
            self._restarts += 1

    @property
    def replica_set(self) -> str:
        return f"{self.pods[0].uid}+{self._restarts}"

    def start_pods(self) -> Iterator[tuple[Pod, Pod]]:
        """Yield copies that start now, each with its original."""
        missing = self.desired - len(self.new)
        most_pods = self.desired + self.surge
        room = most_pods - len(self.old) - len(self.new)
        for _ in range(min(missing, room)):
            copies_before, index = divmod(self._started, len(self.pods))
            original = self.pods[index]
            copy = structs.replace(original, uid=f"{original.uid}+{copies_before + 1}", node="")
            self._started += 1
            self._restarts_before[copy.uid] = self._restarts
            self._ready_at[copy.uid] = None
            self.new[copy.uid] = copy
            yield copy, original

    def end_pods(self, now: int, node_of: Callable[[Pod], str]) -> list[Pod]:
        """Drop and return the old pods that end now."""
        unready_new = sum(self._is_unready(uid) for uid in self.new)
        ready_new = len(self.new) - unready_new
        # As in Kubernetes, old pods count as ready, so unready ones end first.
        surplus = len(self.old) + ready_new - self.desired
        if surplus <= 0:
            return []
        pods_on_node = Counter(map(node_of, (*self.old.values(), *self.new.values())))

        def rank(pod: Pod) -> tuple[bool, bool, int, int, int, str]:
            node = node_of(pod)
            has_node = bool(node)
            is_ready = not self._is_unready(pod.uid)
            restarts = self._restarts_before.get(pod.uid, 0)
            # The more of the Deployment's pods are on its node, the earlier it ends.
            emptiness = -pods_on_node[node]
            age = self._age_rank(pod.uid, now)
            # Kubernetes compares random UIDs last. Names are as random.
            tie_break = f"{pod.name} {pod.uid}"
            return has_node, is_ready, restarts, emptiness, age, tie_break

        ending = sorted(self.old.values(), key=rank)[:surplus]
        for pod in ending:
            del self.old[pod.uid]
        return ending

    def note_ready(self, pod: Pod, now: int) -> None:
        self._ready_at[pod.uid] = now

    def _is_unready(self, uid: str) -> bool:
        return self._ready_at.get(uid, _LONG_AGO) is None

    def _age_rank(self, uid: str, now: int) -> int:
        """Return the binary logarithm of nanoseconds since the pod became ready.

        Kubernetes compares logarithms, so similar ages are equal.
        """
        ready_at = self._ready_at.get(uid, _LONG_AGO)
        if ready_at is None:
            return 0
        return ((now - ready_at) * _NANOSECONDS).bit_length()
