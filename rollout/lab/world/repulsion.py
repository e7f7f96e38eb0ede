"""Which placed pods keep others away by their own anti-affinity.

A scheduler honours anti-affinity both ways. The terms are filed under one label that a repelled pod must
carry, so that a pod is compared only with the terms that can concern it.
"""

from collections.abc import Iterable, Iterator

from rollout.lab.api.selectors import matches
from rollout.lab.api.store import Json
from rollout.lab.world.objects import Key, labels_of
from rollout.lab.world.placement import anti_affinity_terms, term_namespaces, term_selector

_Shelf = tuple[str, str, str]


class Repulsion:
    """The anti-affinity terms of the pods placed so far."""

    def __init__(self) -> None:
        self._shelves: dict[_Shelf, dict[Key, list[Json]]] = {}
        self._filed: dict[Key, list[_Shelf]] = {}

    def add(self, where: Key, pod: Json, namespaces: Iterable[Json]) -> None:
        """Take in a pod that was placed; the namespaces are all that there are."""
        for said in anti_affinity_terms(pod):
            term = {**said, "labelSelector": term_selector(said, pod)}
            for namespace in term_namespaces(term, pod, namespaces):
                shelf = _shelf(namespace, term)
                self._shelves.setdefault(shelf, {}).setdefault(where, []).append(term)
                self._filed.setdefault(where, []).append(shelf)

    def drop(self, where: Key) -> None:
        """Forget a pod that left its place."""
        for shelf in self._filed.pop(where, ()):
            terms = self._shelves.get(shelf)
            if terms is None:
                continue
            terms.pop(where, None)
            if not terms:
                del self._shelves[shelf]

    def against(self, pod: Json) -> Iterator[tuple[Key, str]]:
        """The pods that keep this one away, each with the topology key of its term."""
        if not self._shelves:
            return
        namespace, labels = pod["metadata"].get("namespace", ""), labels_of(pod)
        for label in (("", ""), *labels.items()):
            for where, terms in self._shelves.get((namespace, *label), {}).items():
                for term in terms:
                    if matches(term.get("labelSelector"), labels):
                        yield where, term["topologyKey"]


def _shelf(namespace: str, term: Json) -> _Shelf:
    labels: Json = (term.get("labelSelector") or {}).get("matchLabels") or {}
    name, value = next(iter(labels.items()), ("", ""))
    return namespace, name, value
