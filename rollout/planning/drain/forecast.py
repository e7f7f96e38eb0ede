"""The nodes that take part, each with all that is known of its drain beforehand."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rollout.model.cluster import Budget, ClusterSnapshot, Node, Pod, finding_of
from rollout.model.host import HostFacts
from rollout.model.plan import Blocker, PlannedNode, PlanWarning
from rollout.model.policy import Policy
from rollout.model.quantity import Duration
from rollout.planning.drain.blockers import drain_findings, stuck_budgets
from rollout.planning.drain.budgets import BudgetIndex, Load, StuckPods, critical_budget, guards
from rollout.planning.drain.scheduler import Scheduler
from rollout.planning.drain.verdicts import Action, DrainRules, PodVerdict, having, judge_all, movable
from rollout.planning.eligibility.candidates import Candidate

_Guarded = Sequence[tuple[Pod, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Drainable:
    """An eligible node with the forecast of its drain.

    `leaving` are the pods that will run elsewhere; `index` knows the budgets that cover them. `guarded` are those about
    which budgets are asked, each with their keys; `load` is what the drain takes of each budget, `holds` the part of it
    that comes back only with the node.
    """

    node: Node
    facts: HostFacts
    verdicts: tuple[PodVerdict, ...]
    blockers: tuple[Blocker, ...]
    warnings: tuple[PlanWarning, ...]
    load: Load
    leaving: tuple[Pod, ...]
    index: BudgetIndex
    holds: Load
    guarded: _Guarded

    def blocked_pods(self) -> Iterator[str]:
        """The pods, as findings name them, whose budget a blocker is about."""
        blocked = {blocker.object for blocker in self.blockers}
        for verdict in self.verdicts:
            if any(finding_of(budget.key) in blocked for budget in self.index.covering(verdict.pod)):
                yield f"pod/{verdict.pod.key}"

    def planned(self, arrivals: int, pool: str) -> PlannedNode:
        """The node as the plan names it."""
        detection = self.facts.detection
        return PlannedNode(
            name=self.node.name,
            boot_id=self.facts.boot_id,
            node_uid=self.node.uid,
            running_version=self.facts.running_version,
            staged_version=detection.version,
            evict=len(having(Action.EVICT, self.verdicts)),
            leave=len(having(Action.LEAVE, self.verdicts)),
            cordoned=self.node.unschedulable,
            staged=detection.needs_reboot,
            arrivals=arrivals,
            machine_id=self.facts.machine_id,
            pool=pool,
            detected_by=detection.by,
            detail=detection.detail,
        )


@dataclass(frozen=True, slots=True)
class DrainForecaster:
    """What the forecasts of all drains have in common.

    `budgets` are the cluster's, and what the operator calls critical; `evicting` is whether budgets are asked at all.
    """

    snapshot: ClusterSnapshot
    pods: Mapping[str, Sequence[Pod]]
    rules: DrainRules
    budgets: Sequence[Budget]
    index: BudgetIndex
    stuck_pods: StuckPods
    scheduler: Scheduler
    evicting: bool
    _by_timeout: dict[Duration, StuckPods] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, snapshot: ClusterSnapshot, policy: Policy) -> "DrainForecaster":
        """Forecasts for a snapshot under a policy, at the moment at which it was read."""
        by_node: dict[str, list[Pod]] = defaultdict(list)
        # by name: what is planned must not depend on the order in which the API lists
        for pod in sorted(snapshot.pods, key=lambda pod: (pod.namespace, pod.name)):
            by_node[pod.node].append(pod)
        # Of two rules for the same pods the stricter holds.
        rules = sorted(policy.drain.critical, key=lambda rule: rule.min_available)
        critical = {budget.key: budget for rule in rules for budget in (critical_budget(rule, snapshot.pods),)}
        budgets = (*snapshot.budgets, *critical.values())
        index, scheduler = BudgetIndex.of(budgets), Scheduler.of(snapshot)
        stuck_pods = StuckPods.of(snapshot.pods, index, snapshot.read_at, policy.drain.timeout)
        return cls(
            snapshot,
            by_node,
            DrainRules.of(policy.drain, snapshot.daemon_sets, now=snapshot.read_at),
            budgets,
            index,
            stuck_pods,
            scheduler,
            evicting=not policy.drain.disable_eviction,
            _by_timeout={policy.drain.timeout: stuck_pods},
        )

    def _stuck_pods(self, timeout: Duration) -> StuckPods:
        """Those of nodes whose drains may take that long."""
        if timeout not in self._by_timeout:
            seen = self.snapshot
            self._by_timeout[timeout] = StuckPods.of(seen.pods, self.index, seen.read_at, timeout)
        return self._by_timeout[timeout]

    def forecast(self, candidate: Candidate, facts: HostFacts) -> Drainable:
        """One node's drain, which may take as long as the candidate's policy says."""
        name, stuck_pods = candidate.node.name, self._stuck_pods(candidate.policy.drain.timeout)
        verdicts = judge_all(self.pods.get(name, ()), self.rules)
        blockers, warnings = drain_findings(name, verdicts, self.index, stuck_pods, evicting=self.evicting)
        if self.evicting:
            blockers += stuck_budgets(name, verdicts, self.index, self.scheduler, stuck_pods)
        leaving = () if having(Action.REFUSE, verdicts) else movable(verdicts)
        guarded = self._guarded(verdicts)
        return Drainable(
            candidate.node,
            facts,
            verdicts,
            blockers,
            warnings,
            Counter(key for _, keys in guarded for key in keys),
            leaving,
            self.index,
            self._holds(name, leaving, guarded) if guarded else {},
            guarded,
        )

    def _guarded(self, verdicts: Sequence[PodVerdict]) -> _Guarded:
        """The pods that budgets are asked about, each with their keys."""
        if not self.evicting:
            return []
        candidates = (
            (verdict.pod, tuple(guards(verdict.pod, self.index))) for verdict in having(Action.EVICT, verdicts)
        )
        return [(pod, keys) for pod, keys in candidates if keys]

    def _holds(self, node: str, leaving: Sequence[Pod], guarded: _Guarded) -> Load:
        """What comes back only with the node: pods that nothing replaces, or that find no other place."""
        moving = {pod.uid for pod in leaving} - _without_place(node, leaving, self.scheduler)
        return Counter(key for pod, keys in guarded if pod.uid not in moving for key in keys)


def _without_place(node: str, moving: Sequence[Pod], scheduler: Scheduler) -> frozenset[str]:
    """Of the pods that leave a node, the UIDs of those that run nowhere else while it is away."""
    scheduler.close((node,))
    with scheduler.departed([(node, pod) for pod in moving]) as targets:
        return frozenset(uid for uid, target in targets.items() if target in ("", node))
