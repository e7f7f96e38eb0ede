"""How long each wave is likely to take, and when each node of one whose nodes follow one another is likely to begin.

What past runs tell is played pod by pod. As long as all is assumed, it is reckoned generously by the rates of budgets.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rollout.model.cluster import Node, Pod
from rollout.model.plan import Estimate, Rolling, TimeEstimate, Wave
from rollout.model.policy import DrainPolicy, Policy
from rollout.model.quantity import LONGEST
from rollout.planning.course import Leg, Setting, Stretch, played
from rollout.planning.estimates import Pace, past_run, settled, wave_estimate
from rollout.planning.packing import Limits
from rollout.planning.pools import Pools
from rollout.planning.rolling import slow_first
from rollout.planning.schedule import schedule
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
    """What estimates go by; `leaving` are the pods that leave each of the `nodes` as things are now."""

    policy: Policy
    pools: Pools
    pace: Pace
    limits: Limits
    nodes: Mapping[str, Node]
    leaving: Mapping[str, Sequence[Pod]]
    setting: Setting

    @property
    def wait(self) -> int:
        """Seconds before each drain."""
        return round(self.policy.exclude_from_load_balancers + self.policy.courtesy.drain_delay)

    def timed(self, waves: Sequence[Wave], layout: Sequence[Placed]) -> tuple[tuple[Wave, ...], TimeEstimate]:
        """The waves with their times, and how long the whole is likely to take."""
        if not waves or not self.pace.is_known:
            assumed = tuple(self._by_rates(waves, layout))
            return assumed, self._whole(assumed)
        stretches = [self._stretch(placed) for placed in layout]
        courses = [tuple(map(self._as_played, waves, layout, legs)) for legs in played(self.setting, stretches)]
        likely = sorted(courses, key=_total)[len(courses) // 2]
        return likely, self._whole(likely)

    def _whole(self, waves: Sequence[Wave]) -> TimeEstimate:
        return TimeEstimate(_total(waves), self.pace.basis) if waves else TimeEstimate()

    def _by_rates(self, waves: Sequence[Wave], layout: Sequence[Placed]) -> Iterator[Wave]:
        before = 0
        for wave, placed in zip(waves, layout, strict=True):
            timed = replace(wave, estimate=self._assumed(placed))
            timed = timed if placed.rolling is None else self._rolling(timed, placed, placed.rolling, before)
            before += timed.estimate.seconds
            yield timed

    def _stretch(self, placed: Placed) -> Stretch:
        names = placed.names if placed.rolling is None else list(slow_first(self._each_alone(placed)))
        return Stretch(names, placed.rolling, self._most(placed))

    def _as_played(self, wave: Wave, placed: Placed, leg: Leg) -> Wave:
        soak, delay = round(self.policy.gates.soak), round(self.policy.courtesy.reboot_delay)
        reboot = self.pace.reboot(0, len(leg.turns)) + delay
        drain = max(turn.empty - turn.begin for turn in leg.turns.values())
        if placed.rolling is None:
            estimate = Estimate(leg.end - leg.begin, drain, reboot, leg.end - leg.begin - drain - reboot - soak, soak)
            return replace(wave, estimate=estimate)
        # Each is reckoned as most are, so that the slowest of them may end later than all of that.
        whole = max(leg.end - leg.begin, self.wait + self.slowest(placed.names) + reboot)
        return replace(
            wave,
            nodes=tuple(sorted(wave.nodes, key=lambda node: list(leg.turns).index(node.name))),
            rolling=replace(placed.rolling, begins={name: turn.begin for name, turn in leg.turns.items()}),
            estimate=Estimate(whole, drain, reboot, 0, soak),
        )

    def slowest(self, names: Sequence[str]) -> int:
        """How many seconds the last pod of these nodes takes to end."""
        return slowest_ending([self.leaving.get(name, ()) for name in names], self.policy.drain, self.pace)

    def _assumed(self, placed: Placed) -> Estimate:
        """A wave whose nodes drain side by side, by the rates of their budgets."""
        policy, slowest, most = self.policy, self.slowest(placed.names), self._most(placed)
        shared = self.limits.rates.drains(placed.pieces)
        drains = [self.wait + min(most[name], max(seconds, slowest)) for name, seconds in shared.items()]
        estimate = wave_estimate(drains, self.pace, policy.gates.soak, policy.courtesy.reboot_delay)
        pods = [pod for name in placed.names for pod in self.leaving.get(name, ())]
        late = self._ready(pods, estimate.drain) - estimate.drain - estimate.reboot
        return settled(estimate, max(late, self.pace.settle(pods)) if pods else 0)

    def _ready(self, pods: Sequence[Pod], drain: int) -> int:
        """When the replacements of these pods are ready whose last is gone then, where they tell of their starts."""
        ready, grace_of = 0, self.policy.drain.grace_of
        for uid, pod in {pod.owner.uid: pod for pod in pods if pod.owner}.items():
            if uid in self.pace.starts:
                ready = max(ready, drain + self.pace.starting(grace_of(pod.grace_period), (uid,)))
        return ready

    def _rolling(self, wave: Wave, placed: Placed, rules: Rolling, before: int) -> Wave:
        """A wave whose nodes follow one another, with when each may begin: `before` seconds are over by then."""
        begins, whole = schedule(rules, self._in_company(placed, rules, slow_first(self._each_alone(placed))))
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

    def _each_alone(self, placed: Placed) -> Mapping[str, int]:
        return {piece.name: self._alone(replace(placed, pieces=(piece,))) for piece in placed.pieces}

    def _alone(self, placed: Placed) -> int:
        """How long a node alone is likely to take: as long as its own last run did, where that was longer."""
        estimate, node = self._assumed(placed), self.nodes[placed.names[0]]
        return max(estimate.seconds, round(past_run(node) or 0) + estimate.settle + estimate.soak)

    def _in_company(self, placed: Placed, rules: Rolling, alone: Mapping[str, int]) -> Mapping[str, int]:
        """How long each is away where drains meet; a schedule of the longest waits shows whose do."""
        rates, pieces = self.limits.rates, placed.pieces
        waits = rates.waits(pieces, rules.in_flight) if self.limits.rounds else {}
        if not any(waits.values()):
            return alone
        begins, _ = schedule(rules, _prolonged(alone, waits))
        return _prolonged(alone, rates.waits_beside(pieces, begins, waits))


def _total(waves: Sequence[Wave]) -> int:
    return sum(wave.estimate.seconds for wave in waves)


def _prolonged(seconds: Mapping[str, int], waits: Mapping[str, int]) -> Mapping[str, int]:
    return {name: alone + waits.get(name, 0) for name, alone in seconds.items()}
