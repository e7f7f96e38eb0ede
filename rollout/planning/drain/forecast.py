"""The forecast of each participating node's drain."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rollout.model.cluster import CRITICAL, Budget, ClusterSnapshot, Node, Pod, budget_subject
from rollout.model.host import HostFacts
from rollout.model.plan import Blocker, PlannedNode, PlanWarning
from rollout.model.policy import Policy
from rollout.model.text import grouped
from rollout.planning.drain.blockers import drain_findings, storage_opening, stuck_budget
from rollout.planning.drain.budgets import BudgetIndex, Headcount, Load, critical_budget, guards
from rollout.planning.drain.scheduler import Scheduler
from rollout.planning.drain.verdicts import (
    Action,
    DrainRules,
    PodVerdict,
    judge_all,
    movable,
    with_action,
)
from rollout.planning.eligibility.candidates import Candidate

_Keys = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Drainable:
    """An eligible node with the forecast of its drain.

    `leaving` are the pods that will run elsewhere; `index` finds the budgets that cover them.
    `guarded` has, by pod UID, the keys of the budgets that the API server asks about it.
    `load` is how many pods of each budget the drain evicts.
    `holds` is the part of `load` that is away until the node is back: pods that nothing
    replaces, or that fit on no other node.
    """

    node: Node
    pool: str
    facts: HostFacts
    verdicts: tuple[PodVerdict, ...]
    blockers: tuple[Blocker, ...]
    warnings: tuple[PlanWarning, ...]
    load: Load
    leaving: tuple[Pod, ...]
    index: BudgetIndex
    holds: Load
    guarded: _Keys

    def blocked(self) -> Iterator[str]:
        """Yield the objects of blockers, and the pods of budgets that block."""
        blocked = {blocker.object for blocker in self.blockers}
        yield from blocked
        for verdict in self.verdicts if blocked else ():
            if any(
                budget_subject(budget.key) in blocked for budget in self.index.covering(verdict.pod)
            ):
                yield f"pod/{verdict.pod.key}"

    def planned(self, arrivals: int) -> PlannedNode:
        detection = self.facts.detection
        return PlannedNode(
            name=self.node.name,
            boot_id=self.facts.boot_id,
            node_uid=self.node.uid,
            running_version=self.facts.running_version,
            staged_version=detection.version,
            evict=len(with_action(Action.EVICT, self.verdicts)),
            leave=len(with_action(Action.LEAVE, self.verdicts)),
            cordoned=self.node.unschedulable,
            staged=detection.needs_reboot,
            arrivals=arrivals,
            machine_id=self.facts.machine_id,
            pool=self.pool,
            detected_by=detection.by,
            detail=detection.detail,
        )


@dataclass(frozen=True, slots=True)
class DrainForecaster:
    """Forecasts drains on one snapshot.

    `pods` are by node name. `budgets` has the cluster's budgets and the critical rules, by key.
    `index` finds them by pod; it is empty with `--disable-eviction`.
    """

    pods: Mapping[str, Sequence[Pod]]
    rules: DrainRules
    budgets: Mapping[str, Budget]
    index: BudgetIndex
    headcount: Headcount
    scheduler: Scheduler

    @classmethod
    def of(cls, snapshot: ClusterSnapshot, policy: Policy) -> "DrainForecaster":
        # A plan must not depend on the order in which the API lists pods.
        pods = sorted(snapshot.pods, key=lambda pod: (pod.namespace, pod.name))
        # Of two rules for the same pods, the stricter comes last and wins.
        rules = sorted(policy.drain.critical, key=lambda rule: rule.min_available)
        critical = (critical_budget(rule, snapshot.pods) for rule in rules)
        budgets = {budget.key: budget for budget in (*snapshot.budgets, *critical)}
        index = BudgetIndex.of(() if policy.drain.disable_eviction else budgets.values())
        return cls(
            grouped((pod.node, pod) for pod in pods),
            DrainRules.of(policy.drain, snapshot.daemon_sets, now=snapshot.read_at),
            budgets,
            index,
            Headcount.of(snapshot.pods, index, snapshot.read_at),
            Scheduler.of(snapshot),
        )

    def forecast(self, candidate: Candidate, facts: HostFacts) -> Drainable:
        name = candidate.node.name
        verdicts = judge_all(self.pods.get(name, ()), self.rules)
        blockers, warnings = drain_findings(
            name, verdicts, self.index, self.headcount, candidate.policy.drain
        )
        evicted = (verdict.pod for verdict in with_action(Action.EVICT, verdicts))
        guarded = {pod.uid: keys for pod in evicted if (keys := tuple(guards(pod, self.index)))}
        moving = movable(verdicts)
        holds, stuck = self._try_moving(name, moving, guarded) if guarded else ({}, ())
        return Drainable(
            candidate.node,
            candidate.pool,
            facts,
            verdicts,
            (*blockers, *stuck),
            warnings,
            Counter(key for keys in guarded.values() for key in keys),
            () if with_action(Action.REFUSE, verdicts) else moving,
            self.index,
            holds,
            guarded,
        )

    def _try_moving(
        self, node: str, moving: Sequence[Pod], guarded: _Keys
    ) -> tuple[Load, tuple[Blocker, ...]]:
        """Return the node's `holds`, and the budgets that never let the drain end.

        A budget blocks if more of the node's pods fit nowhere else than it lets be away. The order
        is the most favorable one: pods of tight budgets first, and the largest of them first.
        """
        evictable = {
            uid: keys
            for uid, keys in guarded.items()
            if sum(not key.startswith(CRITICAL) for key in keys) <= 1
        }
        asked = {
            pod.uid: keys
            for pod in moving
            if (keys := evictable.get(pod.uid)) and not storage_opening(pod)
        }
        counts = Counter(key for pod in moving for key in asked.get(pod.uid, ()))
        open_ones = (key for key in sorted(counts) if self.budgets[key].disruptions_allowed > 0)
        most = {key: self.headcount.most_away(self.budgets[key]) for key in open_ones}
        tight = [key for key, away in most.items() if counts[key] > away]

        def rank(pod: Pod) -> tuple[bool, int, int]:
            is_tight = any(key in tight for key in asked.get(pod.uid, ()))
            return not is_tight, -pod.requests.cpu_milli, -pod.requests.memory

        with self.scheduler.emptied({node: sorted(moving, key=rank)}) as left:
            staying = left.get(node, ())
            kept = {pod.uid for pod in staying}.union(guarded.keys() - {pod.uid for pod in moving})
            holds = Counter(key for uid in kept for key in guarded.get(uid, ()))
            stuck = []
            for key in tight:
                lost = [
                    pod
                    for pod in staying
                    if key in asked.get(pod.uid, ()) and not self.scheduler.returns(pod)
                ]
                if len(lost) > most[key]:
                    names = [pod.name for pod in lost]
                    nowhere = self.scheduler.nowhere(lost[0])
                    stuck.append(
                        stuck_budget(node, self.budgets[key], self.headcount, names, nowhere)
                    )
        return holds, tuple(stuck)
