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

# Budgets' keys, by pod UID.
_BudgetsByPod = Mapping[str, tuple[str, ...]]


class DrainForecast(Struct, frozen=True):
    node: Node
    pool: str
    facts: HostFacts
    verdicts: tuple[PodVerdict, ...]
    blockers: tuple[Blocker, ...]
    warnings: tuple[PlanWarning, ...]
    # How many evicted pods each budget guards.
    load: Load
    leaving: tuple[Pod, ...]
    index: BudgetIndex
    # Pods of each budget that are away until the node is back.
    kept_permits: Load
    controllers: NodeControllers
    # The Deployments whose restart replaces a pod before it ends, by the pod's UID.
    surging: Mapping[str, Deployment]
    # How long the drain waits for pods to complete if it begins now.
    wait_seconds: int = 0
    # Until these pods have completed, even if the drain does not wait so long.
    completed_in: int = 0
    # The version that needs another reboot after this one, or empty.
    next_version: str = ""

    def guarded_pods(self) -> Iterator[tuple[Pod, tuple[str, ...]]]:
        """Yield the pods whose evictions have to wait for budgets, and the budgets' keys."""
        for verdict in with_action(Action.EVICT, self.verdicts):
            pod = verdict.pod
            if pod.uid not in self.surging:
                yield pod, guarding_budgets(pod, self.index)

    def blocked_objects(self) -> Iterator[str]:
        """Yield the objects of the blockers, and the pods that a blocking budget covers."""
        objects = {blocker.object for blocker in self.blockers}
        yield from objects
        if not objects:
            return
        for verdict in self.verdicts:
            budgets = self.index.covering(verdict.pod)
            if any(budget_subject(budget.key) in objects for budget in budgets):
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
    """What budgets mean for a drain, as in `DrainForecast`."""

    load: Load
    kept_permits: Load
    surging: Mapping[str, Deployment]
    # Blockers for budgets that never let the drain end.
    stuck: tuple[Blocker, ...]


class DrainForecaster(Struct, frozen=True):
    pods_by_node: Mapping[str, Sequence[Pod]]
    rules: DrainRules
    # By key, with the rules of drain.critical.
    budgets: Mapping[str, Budget]
    # Empty with `--disable-eviction`.
    index: BudgetIndex
    headcount: Headcount
    scheduler: Scheduler
    completion: CompletionForecast
    surges: Surges

    @classmethod
    def of(cls, snapshot: ClusterSnapshot, policy: Policy) -> "DrainForecaster":
        # The API may list pods in any order.
        pods = sorted(snapshot.pods, key=lambda pod: (pod.namespace, pod.name))
        # The stricter of two rules for the same pods comes last and wins.
        rules = sorted(policy.drain.critical, key=lambda rule: rule.min_available)
        critical = (critical_budget(rule, snapshot.pods) for rule in rules)
        budgets = {budget.key: budget for budget in (*snapshot.budgets, *critical)}
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
        moving = movable_pods(verdicts)
        budgets = self._forecast_budgets(name, evicted, moving)
        # A rollback leaves newer versions on purpose.
        is_update = not candidate.policy.rollback
        return DrainForecast(
            node=candidate.node,
            pool=candidate.pool,
            facts=facts,
            verdicts=verdicts,
            blockers=(*blockers, *budgets.stuck),
            warnings=(*warnings, *self.completion.warnings(name, awaited, completion)),
            load=budgets.load,
            leaving=() if with_action(Action.REFUSE, verdicts) else moving,
            index=self.index,
            kept_permits=budgets.kept_permits,
            controllers=NodeControllers.of(evicted, self.index),
            wait_seconds=min(completed_in, round(completion.timeout)),
            completed_in=completed_in,
            surging=budgets.surging,
            next_version=candidate.inputs.versions.after_staged(facts) if is_update else "",
        )

    def _forecast_budgets(
        self, node: str, evicted: Sequence[Pod], moving: Sequence[Pod]
    ) -> _BudgetForecast:
        budgets_of = {pod.uid: guarding_budgets(pod, self.index) for pod in evicted}
        surging = self._surging(evicted, budgets_of)
        budgets_of_surging = {uid: budgets_of[uid] for uid in surging}
        guarded = {uid: keys for uid, keys in budgets_of.items() if keys and uid not in surging}
        kept_permits: Load = {}
        stuck: tuple[Blocker, ...] = ()
        if guarded or budgets_of_surging:
            kept_permits, stuck = self._try_moving(
                node, moving, guarded=guarded, surging=budgets_of_surging
            )
        load = _count_keys(guarded, uids=guarded)
        return _BudgetForecast(load, kept_permits, surging, stuck)

    def _surging(self, pods: Iterable[Pod], keys_of: _BudgetsByPod) -> Mapping[str, Deployment]:
        """Return `DrainForecast.surging`; `keys_of` has each pod's budgets."""
        surging = dict[str, Deployment]()
        for pod in pods:
            for key in keys_of[pod.uid]:
                deployment = self.surges.deployment_to_restart(pod, self.budgets[key])
                if deployment is not None:
                    surging[pod.uid] = deployment
        return surging

    def _try_moving(
        self, node: str, moving: Sequence[Pod], guarded: _BudgetsByPod, surging: _BudgetsByPod
    ) -> tuple[Load, tuple[Blocker, ...]]:
        """Return the node's `kept_permits`, and blockers for stuck budgets.

        A budget blocks if more of the node's pods fit nowhere else than may be away; of `surging`
        pods, none may be.
        """
        budgets_of = {**_budgets_of_evictable(moving, guarded), **surging}
        most_away = dict(self._most_away_of_tight(budgets_of))
        for keys in surging.values():
            most_away |= dict.fromkeys(keys, 0)
        ordered = _in_favorable_order(moving, budgets_of, most_away)
        with self.scheduler.emptied({node: ordered}) as unplaced:
            staying = unplaced.get(node, ())
            kept_permits = _kept_permits(guarded, moving, staying)
            # Pods that tolerate cordons start here again, so they are away only during the reboot.
            down = [pod for pod in staying if not self.scheduler.tolerates_cordons(pod)]
            stuck_budgets = tuple(self._stuck_budgets(node, down, budgets_of, most_away))
        return kept_permits, stuck_budgets

    def _stuck_budgets(
        self,
        node: str,
        down: Sequence[Pod],
        budgets_of: _BudgetsByPod,
        most_away: Mapping[str, int],
    ) -> Iterator[Blocker]:
        for key, most in most_away.items():
            lost = [pod for pod in down if key in budgets_of.get(pod.uid, ())]
            if len(lost) > most:
                names = [pod.name for pod in lost]
                obstacle = self.scheduler.why_nowhere(lost[0])
                budget = self.budgets[key]
                yield stuck_budget_blocker(
                    node, budget, self.headcount, lost=names, obstacle=obstacle
                )

    def _most_away_of_tight(self, budgets_of: _BudgetsByPod) -> Mapping[str, int]:
        """Return how many pods may be away, for each tight budget: one with more of these pods."""
        counts = _count_keys(budgets_of, uids=budgets_of)
        most_away = dict[str, int]()
        for key in sorted(counts):
            budget = self.budgets[key]
            most = self.headcount.most_away(budget)
            if budget.disruptions_allowed > 0 and counts[key] > most:
                most_away[key] = most
        return most_away


def _budgets_of_evictable(moving: Iterable[Pod], guarded: _BudgetsByPod) -> _BudgetsByPod:
    """Return the budgets of moving pods that can be evicted once these allow it."""
    evictable = dict[str, tuple[str, ...]]()
    for pod in moving:
        keys = guarded.get(pod.uid, ())
        disruption_budgets = [key for key in keys if not key.startswith(CRITICAL)]
        # The API server refuses to evict a pod that several budgets cover.
        is_refused = len(disruption_budgets) > 1
        if keys and not is_refused and find_storage_operator(pod) is None:
            evictable[pod.uid] = keys
    return evictable


def _in_favorable_order(
    pods: Iterable[Pod], budgets_of: _BudgetsByPod, tight: Container[str]
) -> Sequence[Pod]:
    """Return the largest pods of tight budgets first: in no other order do more of them fit."""

    def rank(pod: Pod) -> tuple[bool, int, int]:
        is_tight = any(key in tight for key in budgets_of.get(pod.uid, ()))
        return not is_tight, -pod.requests.cpu_milli, -pod.requests.memory

    return sorted(pods, key=rank)


def _kept_permits(guarded: _BudgetsByPod, moving: Iterable[Pod], staying: Iterable[Pod]) -> Load:
    # Nothing replaces a pod that does not move.
    unreplaced = guarded.keys() - {pod.uid for pod in moving}
    return _count_keys(guarded, unreplaced.union(pod.uid for pod in staying))


def _count_keys(keys_of: _BudgetsByPod, uids: Iterable[str]) -> Counter[str]:
    # `Counter[str]()` would give each Counter a dictionary of attributes.
    counts: Counter[str] = Counter()
    for uid in uids:
        counts.update(keys_of.get(uid, ()))
    return counts
