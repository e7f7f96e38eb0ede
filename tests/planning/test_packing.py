"""Packing: the most urgent node first, into the fullest group that takes it; by the plain way to it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.planning.packing import Item, lower_bound, pack
from rollout.planning.sharing import Limits

BUDGETS = ("shop/web", "shop/db", "shop/api", "shop/mail")


@st.composite
def packings(draw: st.DrawFn) -> tuple[list[Item], Limits]:
    """Up to 60 nodes, of which many take something of budgets or room that few may have at once."""
    random = draw(st.randoms(use_true_random=False))
    often, heavy = draw(st.floats(0.05, 1)), draw(st.booleans())
    items = [
        Item(
            {key: random.randint(1, 4) for key in BUDGETS if random.random() < often},
            (random.randint(0, 9), random.randint(0, 9), random.randint(0, 9)) if heavy else (),
        )
        for _ in range(draw(st.integers(1, 60)))
    ]
    allowed = {key: random.randint(0, 8) for key in BUDGETS}
    return items, Limits(draw(st.integers(1, 12)), allowed, (30, 30, 30) if heavy else ())


class Plainly:
    """The same without any queue or index: whoever waits is looked at, and every group."""

    def __init__(self, items: list[Item], limits: Limits) -> None:
        self.items, self.limits = items, limits
        self.groups: list[list[int]] = [[] for _ in range(lower_bound(items, limits))]

    def used(self, group: list[int], budget: str) -> int:
        return sum(self.items[index].load.get(budget, 0) for index in group)

    def bars(self, group: list[int], index: int) -> bool:
        load = self.items[index].load
        return any(not self.limits.admits(budget, self.used(group, budget), need) for budget, need in load.items())

    def takes(self, group: list[int], index: int) -> bool:
        filled = tuple(map(sum, zip(*(self.items[member].weight for member in group), strict=True)))
        is_roomy = not self.items[index].weight or self.limits.has_room(filled, self.items[index].weight)
        return len(group) < self.limits.size and is_roomy and not self.bars(group, index)

    def weight(self, index: int) -> float:
        sharing = {budget: sum(budget in item.load for item in self.items) for budget in BUDGETS}
        load = self.items[index].load
        return sum(sharing[key] * need / max(1, self.limits.capacity[key]) for key, need in load.items())

    def run(self) -> list[list[int]]:
        waiting = set(range(len(self.items)))
        weights = {index: self.weight(index) for index in waiting}
        while waiting:
            barred = {index: sum(self.bars(group, index) for group in self.groups) for index in waiting}
            chosen = max(waiting, key=lambda index: (barred[index], weights[index], -index))
            waiting.discard(chosen)
            taking = [group for group in self.groups if self.takes(group, chosen)]
            if not taking:
                taking = [[]]
                self.groups += taking
            max(taking, key=len).append(chosen)
        return [sorted(group) for group in self.groups if group]


@settings(max_examples=150, deadline=None)
@given(packings())
def test_groups_are_those_of_the_plain_way(packing: tuple[list[Item], Limits]) -> None:
    items, limits = packing
    assert pack(items, limits) == Plainly(items, limits).run()
