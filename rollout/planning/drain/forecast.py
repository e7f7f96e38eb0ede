from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from rollout.model.cluster import CRITICAL, Budget, ClusterSnapshot, Node, Pod, budget_subject
from rollout.model.deployment import Deployment
from rollout.model.host import HostFacts
from rollout.model.plan import Blocker, PlannedNode, PlanWarning
from rollout.model.policy import Policy
from rollout.model.text import grouped
from rollout.planning.drain.blockers import (
    DrainChecker,
    find_storage_operator,
    stuck_budget_blocker,
)
from rollout.planning.drain.budgets import (
    BudgetIndex,
    Headcount,
    Load,
    NodeControllers,
    critical_budget,
    guarding_budgets,
)
from rollout.planning.drain.completion import CompletionForecast
from rollout.planning.drain.scheduler import Scheduler
from rollout.planning.drain.surge import Surges
from rollout.planning.drain.verdicts import (
    Action,
    DrainRules,
    PodVerdict,
    judge_all,
    movable_pods,
    with_action,
)
from rollout.planning.eligibility.candidates import Candidate

_BudgetsByPod = Mapping[str, tuple[str, ...]]


class DrainForecast(Struct, frozen=True):
    """What a node's drain will do with its pods, and what it needs of budgets.

    A budget `guards` a pod if the API server asks it before an eviction. A `surging` pod is
    replaced by a restart of its Deployment.
    """

    node: Node
    pool: str
    facts: HostFacts
    verdicts: tuple[PodVerdict, ...]
    blockers: tuple[Blocker, ...]
    warnings: tuple[PlanWarning, ...]
    # Guarded pods, by budget.
    load: Load
    leaving: tuple[Pod, ...]
    index: BudgetIndex
    # Pods of each budget that are away until the node is back.
    kept_permits: Load
    controllers: NodeControllers
    # By pod UID.
    surging: Mapping[str, Deployment]
    # The drain's wait for completion, if it begins now.
    wait_seconds: int = 0
    # When these pods have completed; the drain may not wait so long.
    completed_in: int = 0
    # The version that needs another reboot after this one, or empty.
    next_version: str = ""

    def guarded_pods(self) -> Iterator[tuple[Pod, tuple[str, ...]]]:
        for verdict in with_action(Action.EVICT, self.verdicts):
            pod = verdict.pod
            if pod.uid not in self.surging:
                yield pod, guarding_budgets(pod, self.index)

    def blocked_objects(self) -> Iterator[str]:
        blocking_objects = {blocker.object for blocker in self.blockers}
        yield from blocking_objects
        if not blocking_objects:
            return
        for verdict in self.verdicts:
            budgets = self.index.covering(verdict.pod)
            if any(budget_subject(budget.key) in blocking_objects for budget in budgets):
                yield f"pod/{verdict.pod.key}"

    def planned_node(self, arrivals: int) -> PlannedNode:
        detection = self.facts.detection
        return PlannedNode(
            name=self.node.name,
            boot_id=self.facts.boot_id,
            node_uid=self.node.uid,
            running_version=self.facts.running_version,
            staged_version=detection.staged_version,
            evict=len(with_action(Action.EVICT, self.verdicts)),
            leave=len(with_action(Action.LEAVE, self.verdicts)),
            was_cordoned=self.node.unschedulable,
            staged=detection.needs_reboot,
            arrivals=arrivals,
            machine_id=self.facts.machine_id,
            pool=self.pool,
            detected_by=detection.needed_by,
            detail=detection.detail,
            wait=len(with_action(Action.WAIT, self.verdicts)),
            wait_seconds=self.wait_seconds,
            next_version=self.next_version,
        )


class _BudgetForecast(NamedTuple):
    load: Load
    kept_permits: Load
    surging: Mapping[str, Deployment]
    # For budgets that never let the drain end.
    blockers: tuple[Blocker, ...]


class DrainForecaster(Struct, frozen=True):
    """Forecasts each node's drain as if no other node were drained.

    In mappings such as `guarded` and `surging`, pods are UIDs and budgets are keys.
    """

    pods_by_node: Mapping[str, Sequence[Pod]]
    rules: DrainRules
    # By key, with the rules of drain.critical.
    budgets: Mapping[str, Budget]
    index: BudgetIndex
    headcount: Headcount
    scheduler: Scheduler
    completion: CompletionForecast
    surges: Surges

    @classmethod
    def of(cls, snapshot: ClusterSnapshot, policy: Policy) -> "DrainForecaster":
        # The API may list pods in any order.
        pods = sorted(snapshot.pods, key=lambda pod: (pod.namespace, pod.name))
        # The strictest of rules for the same pods wins.
        critical_rules = sorted(policy.drain.critical, key=lambda rule: rule.min_available)
        critical_budgets = (critical_budget(rule, snapshot.pods) for rule in critical_rules)
        budgets = {budget.key: budget for budget in (*snapshot.budgets, *critical_budgets)}
        # With --disable-eviction, no budget prevents a deletion.
        index = BudgetIndex.of(() if policy.drain.disable_eviction else budgets.values())
        return cls(
            pods_by_node=grouped((pod.node, pod) for pod in pods),
            rules=DrainRules.of(policy.drain, snapshot.daemon_sets, now=snapshot.read_at),
            budgets=budgets,
            index=index,
            headcount=Headcount.of(snapshot.pods, index, snapshot.read_at),
            scheduler=Scheduler.of(snapshot),
            completion=CompletionForecast.of(snapshot),
            surges=Surges.of(snapshot, policy.drain),
        )

    def forecast(self, candidate: Candidate, facts: HostFacts) -> DrainForecast:
        name = candidate.node.name
        verdicts = judge_all(self.pods_by_node.get(name, ()), self.rules)
        checker = DrainChecker(
            name,
            verdicts=verdicts,
            index=self.index,
            headcount=self.headcount,
            rules=candidate.policy.drain,
            surges=self.surges,
        )
        blockers, warnings = checker.check()
        completion = candidate.policy.drain.completion
        awaited = [verdict.pod for verdict in with_action(Action.WAIT, verdicts)]
        evicted = [verdict.pod for verdict in with_action(Action.EVICT, verdicts)]
        completed_in = self.completion.completed_in(awaited, completion)
        movable = movable_pods(verdicts)
        budgets = self._forecast_budgets(name, evicted, movable)
        is_refused = bool(with_action(Action.REFUSE, verdicts))
        # A rollback leaves newer versions on purpose.
        is_update = not candidate.policy.rollback
        return DrainForecast(
            node=candidate.node,
            pool=candidate.pool,
            facts=facts,
            verdicts=verdicts,
            blockers=(*blockers, *budgets.blockers),
            warnings=(*warnings, *self.completion.warnings(name, awaited, completion)),
            load=budgets.load,
            leaving=() if is_refused else movable,
            index=self.index,
            kept_permits=budgets.kept_permits,
            controllers=NodeControllers.of(evicted, self.index),
            wait_seconds=min(completed_in, round(completion.timeout)),
            completed_in=completed_in,
            surging=budgets.surging,
            next_version=candidate.inputs.versions.after_staged(facts) if is_update else "",
        )

    def _forecast_budgets(
        self, node: str, evicted: Sequence[Pod], movable: Sequence[Pod]
    ) -> _BudgetForecast:
        budgets_by_pod = {pod.uid: guarding_budgets(pod, self.index) for pod in evicted}
        surging = self._deployments_to_restart(evicted, budgets_by_pod)
        surging_budgets = {uid: budgets_by_pod[uid] for uid in surging}
        guarded = {uid: keys for uid, keys in budgets_by_pod.items() if keys and uid not in surging}
        load = _pods_per_budget(guarded, uids=guarded)
        if not guarded and not surging_budgets:
            return _BudgetForecast(load, kept_permits={}, surging=surging, blockers=())
        kept_permits, blockers = self._try_moving(
            node, movable, guarded=guarded, surging=surging_budgets
        )
        return _BudgetForecast(load, kept_permits, surging, blockers)

    def _deployments_to_restart(
        self, pods: Iterable[Pod], budgets_by_pod: _BudgetsByPod
    ) -> Mapping[str, Deployment]:
        """Return, by pod UID, the Deployments that replace a pod before it ends."""
        deployments = dict[str, Deployment]()
        for pod in pods:
            for key in budgets_by_pod[pod.uid]:
                deployment = self.surges.deployment_to_restart(pod, self.budgets[key])
                if deployment is not None:
                    deployments[pod.uid] = deployment
        return deployments

    def _try_moving(
        self, node: str, movable: Sequence[Pod], guarded: _BudgetsByPod, surging: _BudgetsByPod
    ) -> tuple[Load, tuple[Blocker, ...]]:
        """Return blockers, and how many pods each budget lacks until the node is back."""
        budgets_by_pod = {**_budgets_of_evictable(movable, guarded), **surging}
        most_away = dict(self._most_away_by_tight_budget(budgets_by_pod))
        # A surging pod is never away: its new place comes first.
        for budgets in surging.values():
            most_away |= dict.fromkeys(budgets, 0)
        ordered = _in_favorable_order(movable, budgets_by_pod, tight_budgets=most_away)
        with self.scheduler.emptied({node: ordered}) as staying_by_node:
            staying = staying_by_node.get(node, ())
            kept_permits = _kept_permits(guarded, movable, staying)
            # Pods that tolerate cordons start here again.
            lost = [pod for pod in staying if not self.scheduler.tolerates_cordons(pod)]
            blockers = tuple(self._find_stuck_budgets(node, lost, budgets_by_pod, most_away))
        return kept_permits, blockers

    def _find_stuck_budgets(
        self,
        node: str,
        lost: Sequence[Pod],
        budgets_by_pod: _BudgetsByPod,
        most_away: Mapping[str, int],
    ) -> Iterator[Blocker]:
        for key, most in most_away.items():
            lost_by_budget = [pod for pod in lost if key in budgets_by_pod.get(pod.uid, ())]
            if len(lost_by_budget) > most:
                names = [pod.name for pod in lost_by_budget]
                obstacle = self.scheduler.why_nowhere(lost_by_budget[0])
                budget = self.budgets[key]
                yield stuck_budget_blocker(
                    node, budget, self.headcount, lost=names, obstacle=obstacle
                )

    def _most_away_by_tight_budget(self, budgets_by_pod: _BudgetsByPod) -> Mapping[str, int]:
        """Return the limit of each open budget that has more pods."""
        pods_per_budget = _pods_per_budget(budgets_by_pod, uids=budgets_by_pod)
        most_away = dict[str, int]()
        for key in sorted(pods_per_budget):
            budget = self.budgets[key]
            most = self.headcount.most_away(budget)
            # A closed budget has its own finding.
            is_open = budget.disruptions_allowed > 0
            if is_open and pods_per_budget[key] > most:
                most_away[key] = most
        return most_away


def _budgets_of_evictable(movable: Iterable[Pod], guarded: _BudgetsByPod) -> _BudgetsByPod:
    budgets_of_evictable = dict[str, tuple[str, ...]]()
    for pod in movable:
        keys = guarded.get(pod.uid, ())
        disruption_budgets = [key for key in keys if not key.startswith(CRITICAL)]
        # The API server refuses to evict a pod that several budgets cover.
        is_refused = len(disruption_budgets) > 1
        needs_storage_operator = find_storage_operator(pod) is not None
        if keys and not is_refused and not needs_storage_operator:
            budgets_of_evictable[pod.uid] = keys
    return budgets_of_evictable


def _in_favorable_order(
    pods: Iterable[Pod], budgets_by_pod: _BudgetsByPod, tight_budgets: Container[str]
) -> Sequence[Pod]:
    """In no other order do more pods of tight budgets fit."""

    def rank(pod: Pod) -> tuple[bool, int, int]:
        is_tight = any(key in tight_budgets for key in budgets_by_pod.get(pod.uid, ()))
        return not is_tight, -pod.requests.cpu_milli, -pod.requests.memory

    return sorted(pods, key=rank)


def _kept_permits(guarded: _BudgetsByPod, movable: Iterable[Pod], staying: Iterable[Pod]) -> Load:
    """Return how many pods of each budget nothing replaces until the node is back."""
    immovable = guarded.keys() - {pod.uid for pod in movable}
    unreplaced = immovable.union(pod.uid for pod in staying)
    return _pods_per_budget(guarded, unreplaced)


def _pods_per_budget(budgets_by_pod: _BudgetsByPod, uids: Iterable[str]) -> Counter[str]:
    # `Counter[str]()` would give each Counter a dictionary of attributes.
    counts: Counter[str] = Counter()
    for uid in uids:
        counts.update(budgets_by_pod.get(uid, ()))
    return counts
