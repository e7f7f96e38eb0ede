"""How long each wave is likely to take, and when each node of one whose nodes follow one another is likely to begin.

What past runs tell is played pod by pod. As long as all is assumed, it is reckoned generously by the rates of budgets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rollout.model.cluster import Node, Pod
from rollout.model.plan import Estimate, Rolling, Wave
from rollout.model.policy import DrainPolicy, Policy
from rollout.model.quantity import LONGEST
from rollout.planning.budgets import BudgetIndex
from rollout.planning.estimates import Pace, past_run, settled, wave_estimate
from rollout.planning.packing import Limits
from rollout.planning.pools import Pools
from rollout.planning.rolling import slow_first
from rollout.planning.schedule import schedule
from rollout.planning.settling import NO_DEPARTURE, Departure, Emptied, Flow
from rollout.planning.waves import Placed


def timeout(rules: Policy) -> int:
    """The most seconds that a drain may take."""
    return round(rules.drain.timeout) or LONGEST


def slowest_ending(nodes: Sequence[Sequence[Pod]], rules: DrainPolicy, pace: Pace) -> int:
    """How many seconds the last pod of these nodes takes to end, side by side, whatever budgets make of it."""
    known, strange = [0], list[int]()
    for pods in nodes:
        graces = [rules.grace_of(pod.grace_period) for pod in pods if not _is_known(pod, pace)]
        strange += [max(graces)] if graces else []
        tellers = {
            pod.owner.uid: rules.grace_of(pod.grace_period) for pod in pods if pod.owner and _is_known(pod, pace)
        }
        known += [pace.ending_of((uid,), grace) for uid, grace in tellers.items()]
    return max(*known, pace.ending(max(strange), len(strange)) if strange else 0)


def _is_known(pod: Pod, pace: Pace) -> bool:
    return pod.owner is not None and pod.owner.uid in pace.endings


@dataclass(frozen=True, slots=True)
class Timing:
    """What estimates go by, wave after wave; `departures` are what leaves each of the `nodes` when its turn has come.

    Of those that came from other nodes, `at_home` are, by UID, pods that are likely to have gone to one that was done:
    they began to start once such a node was back.
    """

    policy: Policy
    pools: Pools
    pace: Pace
    limits: Limits
    index: BudgetIndex
    nodes: Mapping[str, Node]
    departures: Mapping[str, Departure]
    at_home: set[str] = field(default_factory=set[str])

    @property
    def wait(self) -> int:
        """Seconds before each drain."""
        return round(self.policy.exclude_from_load_balancers + self.policy.courtesy.drain_delay)

    def flow(self) -> Flow:
        """What plays drains."""
        return Flow(self.pace, self.limits.rates, self.policy.drain, self.index)

    def departure(self, name: str) -> Departure:
        """What leaves a node."""
        departure = self.departures.get(name, NO_DEPARTURE)
        if self.at_home.isdisjoint(pod.uid for pod in departure.pods):
            return departure
        return replace(departure, pods=[pod for pod in departure.pods if pod.uid not in self.at_home])

    def slowest(self, names: Sequence[str]) -> int:
        """How many seconds the last pod of these nodes takes to end."""
        return slowest_ending([self.departure(name).pods for name in names], self.policy.drain, self.pace)

    def estimate(self, placed: Placed, *, is_last: bool = False) -> Estimate:
        """A wave whose nodes drain side by side; behind the last one the rollout does not wait for settling."""
        policy, slowest, most = self.policy, self.slowest(placed.names), self._most(placed)
        empty, ready = self._played(placed, most, slowest) if self.pace.starts or self.pace.is_known else ({}, 0)
        shared = empty if self.pace.is_known else self.limits.rates.drains(placed.pieces)
        drains = [self.wait + min(most[name], max(seconds, slowest)) for name, seconds in shared.items()]
        estimate = wave_estimate(drains, self.pace, policy.gates.soak, policy.courtesy.reboot_delay)
        if is_last and self.pace.is_known:
            return estimate
        pods = [pod for name in placed.names for pod in self.departure(name).pods]
        late = self.wait + ready - estimate.drain - estimate.reboot
        return settled(estimate, max(late, self.pace.settle(pods)) if pods else 0)

    def _played(self, placed: Placed, most: Mapping[str, int], slowest: int) -> tuple[Mapping[str, int], int]:
        """When each node is empty, and when all that left them is ready: who has the fewest pods goes first."""
        flow, empty, ready, first, left = self.flow(), dict[str, int](), 0, LONGEST, list[Emptied]()
        delay = round(self.policy.courtesy.reboot_delay)
        for piece in sorted(placed.pieces, key=lambda piece: (piece.pods, piece.name)):
            emptied = flow.drain(self.departure(piece.name), 0, most[piece.name])
            empty[piece.name] = drain = max(slowest, emptied.empty)
            back = drain + delay + self.pace.reboot(drain + delay, len(most))
            ready, first = max(ready, flow.back(emptied, back)), min(first, back)
            left.append(emptied)
        if placed.rolling is None:
            self.at_home.update(*(emptied.at_home(first) for emptied in left))
        return empty, ready

    def rolling(self, wave: Wave, placed: Placed, before: int, *, is_last: bool) -> Wave:
        """A wave whose nodes follow one another, with when each may begin: `before` seconds are over by then."""
        rules, most = placed.rolling or Rolling(1), self._most(placed)
        if self.pace.is_known:
            turns, alone = _Turns(self, most), {name: _Turns(self, most).begin(name, 0) for name in placed.names}
            begins, whole = schedule(rules, slow_first(alone), turns.begin)
            self.at_home.update(turns.timing.at_home)
            whole = max(turns.back.values()) if is_last else whole
        else:
            alone = {piece.name: self._alone(replace(placed, pieces=(piece,))) for piece in placed.pieces}
            begins, whole = schedule(rules, self._in_company(placed, rules, slow_first(alone)))
        # Each is reckoned as most are, so that the slowest of them may end later than all of that.
        whole = max(whole, wave.estimate.seconds - wave.estimate.drain + self.slowest(placed.names))
        shifted = {name: before + begin for name, begin in begins.items()}
        nodes = tuple(sorted(wave.nodes, key=lambda node: shifted[node.name]))
        return replace(
            wave, nodes=nodes, rolling=replace(rules, begins=shifted), estimate=replace(wave.estimate, seconds=whole)
        )

    def _most(self, placed: Placed) -> Mapping[str, int]:
        """The most seconds that each drain may take."""
        return {piece.name: timeout(self.pools.rules(piece.pool)) for piece in placed.pieces}

    def _alone(self, placed: Placed) -> int:
        """How long a node alone is likely to take: as long as its own last run did, where that was longer."""
        estimate, node = self.estimate(placed), self.nodes[placed.names[0]]
        return max(estimate.seconds, round(past_run(node) or 0) + estimate.settle + estimate.soak)

    def _in_company(self, placed: Placed, rules: Rolling, alone: Mapping[str, int]) -> Mapping[str, int]:
        """How long each is away where drains meet; a schedule of the longest waits shows whose do."""
        rates, pieces = self.limits.rates, placed.pieces
        waits = rates.waits(pieces, rules.in_flight) if self.limits.rounds else {}
        if not any(waits.values()):
            return alone
        begins, _ = schedule(rules, _prolonged(alone, waits))
        return _prolonged(alone, rates.waits_beside(pieces, begins, waits))


class _Turns:
    """Nodes that follow one another, played as each begins; `back` is when each is back, in the same seconds.

    `timing` is its own, as its pods go: nodes are also played alone, which says nothing of the others.
    """

    def __init__(self, timing: Timing, most: Mapping[str, int]) -> None:
        self.timing, self._most = replace(timing, at_home=set(timing.at_home)), most
        self._flow = timing.flow()
        self.back = dict[str, int]()

    def begin(self, name: str, now: int) -> int:
        """One begins; how long it is away: until it is back, and all that left it is ready."""
        timing, departure = self.timing, self.timing.departure(name)
        policy, begins = timing.policy, now + timing.wait
        emptied = self._flow.drain(departure, begins, self._most[name])
        empty, delay = max(emptied.empty, begins + timing.slowest((name,))), round(policy.courtesy.reboot_delay)
        back = empty + delay + timing.pace.reboot(empty + delay - now, 1)
        # A host may boot more slowly than most.
        self.back[name] = back = max(back, now + round(past_run(timing.nodes[name]) or 0))
        timing.at_home.update(emptied.at_home(min(self.back.values())))
        settle = timing.pace.settle(departure.pods) if departure.pods else 0
        return max(back + settle, self._flow.back(emptied, back)) + round(policy.gates.soak) - now


def _prolonged(seconds: Mapping[str, int], waits: Mapping[str, int]) -> Mapping[str, int]:
    return {name: alone + waits.get(name, 0) for name, alone in seconds.items()}
