"""Which disruption budgets pick a pod, without asking every budget of its namespace."""

from collections.abc import Mapping

from rollout.lab.api.selectors import matches
from rollout.lab.api.store import Change, ChangeType, Json
from rollout.lab.world.objects import Key, key, spec_of

_Shelf = tuple[str, str, str]


class BudgetIndex:
    """Budgets, filed under one label that a pod they pick must carry."""

    def __init__(self) -> None:
        self._shelves: dict[_Shelf, dict[Key, Json]] = {}

    def apply(self, change: Change) -> None:
        """Take in one change of a budget."""
        where = key(change.obj)
        if change.previous is not None:
            self._shelves.get(_shelf(change.previous), {}).pop(where, None)
        if change.type is not ChangeType.DELETED:
            self._shelves.setdefault(_shelf(change.obj), {})[where] = change.obj

    def picking(self, namespace: str, labels: Mapping[str, str]) -> list[Json]:
        """The budgets that a pod with these labels falls under."""
        return [
            budget
            for label in (("", ""), *labels.items())
            for budget in self._shelves.get((namespace, *label), {}).values()
            if matches(spec_of(budget).get("selector"), labels)
        ]


def _shelf(budget: Json) -> _Shelf:
    selector: Json = spec_of(budget).get("selector") or {}
    label, value = next(iter((selector.get("matchLabels") or {}).items()), ("", ""))
    return key(budget)[0], label, value
