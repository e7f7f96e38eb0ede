"""No plan that a played rollout cannot finish: its drains through every budget, pod by pod, on random clusters."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.model.cluster import Budget, Node, Pod, Resources
from rollout.model.placement import ANYWHERE, Placement, PodTerm
from rollout.model.policy import Policy, Sharing
from rollout.model.quantity import Count
from rollout.planning.budgets import BudgetIndex
from rollout.planning.plan import Decisions, PlanInputs, assemble, decide
from rollout.planning.scheduler import Rooms
from tests.planning.builders import budget, inputs, node, pod
from tests.planning.played import is_budget
from tests.planning.test_places import HOSTNAME, app
from tests.planning.test_sharing import volume

pytestmark = pytest.mark.slow  # hundreds of clusters, planned and played

# Of 35 s for the first pods and 65 s for each further turn: what fits into the ten minutes of a drain.
TURNS = 9
LARGE_ONES = 2
KINDS = ("anywhere", "apart", "local", "pool", "large")


@st.composite
def clusters(draw: st.DrawFn) -> PlanInputs:
    machines = [
        node(f"w-{i}", labels={HOSTNAME: f"w-{i}", "pool": "ab"[i % 2]}, allocatable=Resources(4000, 8 << 30, 20))
        for i in range(draw(st.integers(2, 8)))
    ]
    pods: list[Pod] = []
    budgets: list[Budget] = []
    volumes = []
    for number in range(draw(st.integers(1, 4))):
        name, kind = f"a{number}", draw(st.sampled_from(KINDS))
        replicas = min(draw(st.integers(2, 6)), len(machines) if kind == "apart" else 6)
        for index in range(replicas):
            where = machines[(number + index) % len(machines)]
            full = sum(each.node == where.name and each.requests.cpu_milli > 0 for each in pods) == LARGE_ONES
            pods.append(one_of("anywhere" if full and kind == "large" else kind, f"{name}-{index}", where, name))
            volumes += [volume(f"{name}-{index}", where.name)] if kind == "local" else []
        if draw(st.integers(0, 4)):
            budgets.append(budget(name, allowed=draw(st.integers(1, 2)), expected=replicas))
    policy = Policy(Count(draw(st.integers(1, 6))), skip_blocked=True, sharing=draw(st.sampled_from(Sharing)))
    made = inputs(machines, pods=pods, budgets=budgets, policy=policy)
    return replace(made, snapshot=replace(made.snapshot, volumes=tuple(volumes)))


def one_of(kind: str, name: str, where: Node, owner: str) -> Pod:
    apart = Placement(repulsions=(PodTerm(HOSTNAME, app(owner)),))
    return pod(
        name,
        where.name,
        app=owner,
        placement=apart if kind == "apart" else ANYWHERE,
        claims=(name,) if kind == "local" else (),
        node_selector={"pool": where.labels["pool"]} if kind == "pool" else {},
        requests=Resources(2000 if kind == "large" else 0, 0, 1),
    )


@dataclass(slots=True)
class Cluster:
    """The cluster as it is played: `down` are pods that do not run now, by UID; `least` the fewest that did."""

    rooms: Rooms
    index: BudgetIndex
    pods: Sequence[Pod]
    healthy: dict[str, int]
    homeless: list[Pod] = field(default_factory=list)
    starting: list[Pod] = field(default_factory=list)

    @classmethod
    def of(cls, made: PlanInputs) -> "Cluster":
        snapshot = made.snapshot
        healthy = {each.key: each.current_healthy for each in snapshot.budgets}
        return cls(Rooms.of(snapshot), BudgetIndex.of(snapshot.budgets), snapshot.pods, healthy)

    def turn(self, nodes: dict[str, list[Pod]]) -> None:
        """What started is ready; then whoever may go goes, and starts anew where there is a place."""
        for each in self.starting:
            self._count(each, 1)
        self.starting.clear()
        for name in sorted(nodes, key=lambda name: (len(nodes[name]), name)):
            going = [each for each in nodes[name] if self._may_go(each)]
            nodes[name] = [each for each in nodes[name] if each not in going]
        self.homeless = [each for each in self.homeless if not self._starts(each)]

    def _may_go(self, each: Pod) -> bool:
        budgets = self.index.covering(each)
        if any(self.healthy[guard.key] <= guard.desired_healthy for guard in budgets):
            return False
        self._count(each, -1)
        self.rooms.take_out(each)
        self.homeless.append(each)
        return True

    def _starts(self, each: Pod) -> bool:
        place = self.rooms.place(each)
        if place:
            self.rooms.put(each, place)
            self.starting.append(each)
        return bool(place)

    def _count(self, each: Pod, by: int) -> None:
        for guard in self.index.covering(each):
            self.healthy[guard.key] += by

    def give_back(self, names: Sequence[str]) -> None:
        """The nodes are back: what found no place before finds one."""
        self.rooms.close(())
        assert [each for each in self.homeless if not self._starts(each)] == []
        self.homeless.clear()
        self.turn({name: [] for name in names})


def play(made: Decisions) -> None:
    """Each node is emptied within a drain's time, but for those of which the plan warns that a budget may wait."""
    cluster, warned = (
        Cluster.of(made.inputs),
        {warning.node for warning in assemble(made).warnings if is_budget(warning)},
    )
    for wave in made.layout.waves:
        cluster.rooms.close(wave.names)
        left = {name: [each for each in cluster.pods if cluster.rooms.node_of(each) == name] for name in wave.names}
        for _ in range(TURNS):
            cluster.turn(left)
            if not any(left.values()):
                break
        if {name for name in wave.names if left[name]} & warned:
            return  # what it comes to after a drain that failed is for another plan
        assert not any(left.values()), (wave.names, wave.because)
        cluster.give_back(wave.names)


@settings(max_examples=200, deadline=None)
@given(clusters())
def test_every_plan_can_be_finished(made: PlanInputs) -> None:
    play(decide(made))
