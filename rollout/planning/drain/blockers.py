"""What will stop a node's drain, found before anything is touched.

Besides what pods and budgets say by themselves, it is tried whether budgets wait in vain for replacements, which fit
nowhere else. Which nodes a pod moves to is foreseen, not known, and in which order a drain's pods get the last room is
chance: so the trial is the most favourable one, in which only pods that wait for one another take room. Where a drain
fails merely if pods arrive as foreseen, or take room in an unlucky order, the layout warns. Priorities are not known
here: where a pod preempts another, whose budget is then broken, a drain might end all the same.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rollout.model.cluster import Budget, Pod, finding_of
from rollout.model.plan import Blocker, BlockerKind, PlanWarning, WarningKind
from rollout.model.quantity import Duration
from rollout.model.text import shortened
from rollout.planning.drain.budgets import (
    BudgetIndex,
    Headcount,
    StuckPods,
    bypasses,
    counts_pods,
    in_words,
    of_the_server,
)
from rollout.planning.drain.scheduler import Scheduler
from rollout.planning.drain.verdicts import Action, PodVerdict, VerdictReason, movable

_REFUSALS = {
    VerdictReason.UNMANAGED: BlockerKind.UNMANAGED_POD,
    VerdictReason.LOCAL_STORAGE: BlockerKind.LOCAL_STORAGE,
    VerdictReason.DAEMONSET_GONE: BlockerKind.DAEMONSET_GONE,
}


def drain_findings(
    node: str, verdicts: Iterable[PodVerdict], index: BudgetIndex, stuck_pods: StuckPods, *, evicting: bool
) -> tuple[tuple[Blocker, ...], tuple[PlanWarning, ...]]:
    """Everything that keeps this node from being drained, and what the operator should know of its drain.

    `evicting` is whether budgets are asked at all.
    """
    of_pods, of_drain = list[PlanWarning](), list[Blocker | PlanWarning]()
    for verdict in verdicts:
        pod = verdict.pod
        if verdict.action is Action.REFUSE:
            of_drain.append(Blocker(node, _REFUSALS[verdict.reason], f"pod/{pod.key}", verdict.message))
            continue
        of_pods += [PlanWarning(node, f"pod/{pod.key}", warning, WarningKind.POD) for warning in verdict.warnings]
        if verdict.action is Action.EVICT and not _goes_freely(pod, index, stuck_pods):
            of_drain += _overdue(node, pod, stuck_pods)
            of_drain += _held_by_budgets(node, pod, index.covering(pod), stuck_pods) if evicting else ()
    blockers = (finding for finding in of_drain if isinstance(finding, Blocker))
    warnings = (finding for finding in of_drain if isinstance(finding, PlanWarning))
    return tuple(dict.fromkeys(blockers)), tuple(dict.fromkeys((*of_pods, *warnings)))


def _goes_freely(pod: Pod, index: BudgetIndex, stuck_pods: StuckPods) -> bool:
    """Whether there is nothing to say of its eviction, as of most: a large cluster has many."""
    budgets = index.covering(pod)
    return not pod.deleted_at and (not budgets or (len(budgets) == 1 and stuck_pods.is_open(budgets[0])))


def _overdue(node: str, pod: Pod, stuck_pods: StuckPods) -> Iterator[Blocker | PlanWarning]:
    seconds, subject = stuck_pods.overdue(pod), f"pod/{pod.key}"
    if not seconds:
        return
    held = f" and is held by {', '.join(pod.finalizers)}" if pod.finalizers else ""
    since = f"should have been gone {Duration(round(seconds))} ago{held}"
    if seconds > stuck_pods.patience:
        way_out = "see what holds it, or leave it behind with drain.skip-wait-for-delete-timeout"
        message = f"{since}, longer than --drain-timeout waits: {way_out}"
        yield Blocker(node, BlockerKind.STUCK_TERMINATING, subject, message)
    else:
        message = f"{since}: the drain waits for it, unless drain.skip-wait-for-delete-timeout leaves it behind"
        yield PlanWarning(node, subject, message, WarningKind.TERMINATING)


def _held_by_budgets(
    node: str, pod: Pod, budgets: tuple[Budget, ...], stuck_pods: StuckPods
) -> Iterator[Blocker | PlanWarning]:
    of_server = of_the_server(budgets)
    if len(of_server) > 1 and not pod.finished and not pod.terminating and not stuck_pods.stays_pending(pod):
        names = ", ".join(budget.name for budget in of_server)
        message = (
            f"is covered by {len(of_server)} budgets ({names}); the API server refuses to evict such a pod: "
            "delete all but one"
        )
        yield Blocker(node, BlockerKind.TWO_BUDGETS, f"pod/{pod.key}", message)
        return
    for budget in budgets:
        subject, is_open = finding_of(budget.key), budget.disruptions_allowed > 0
        if bypasses(pod, budget) or (is_open and _way_given(pod)):
            continue
        if way := _way_given(pod):
            yield PlanWarning(node, subject, way, WarningKind.BUDGET_WAITING)
        elif stuck_pods.can_never_allow(budget):
            yield Blocker(node, BlockerKind.BUDGET_NEVER, subject, _never(budget, stuck_pods.headcount))
        elif is_open:
            continue
        elif unready := _in_the_way(budget, stuck_pods):
            message = _unhealthy(budget, unready, itself=pod in unready)
            yield Blocker(node, BlockerKind.BUDGET_UNHEALTHY, subject, message)
        else:
            message = (
                f"allows no eviction now ({budget.current_healthy} of {budget.desired_healthy} needed pods are "
                "healthy): the drain waits for it, up to --drain-timeout; see why its pods are not ready"
            )
            yield PlanWarning(node, subject, message, WarningKind.BUDGET_WAITING)


def _way_given(pod: Pod) -> str:
    """How the storage whose pod this is lets its own budget give way; empty for all other pods."""
    if pod.is_longhorns:
        return (
            "Longhorn takes it away once the node is cordoned, unless a volume has its last healthy replica here, "
            "or stays attached: then the drain waits in vain, up to --drain-timeout"
        )
    if pod.is_osd:
        return "Rook opens it for one failure domain at a time, once Ceph is healthy: the drain waits for it"
    return ""


def _never(budget: Budget, headcount: Headcount) -> str:
    if budget.sync_error:
        return (
            f"allows no eviction because its controller cannot count its pods ({budget.sync_error}): give it an "
            "absolute minAvailable, let it cover only pods of scalable controllers, or use --disable-eviction"
        )
    if headcount.lacks_scale(budget):
        return (
            f"{in_words(budget)} never allows an eviction because it goes by the scale of its pods' controllers, and "
            "they have none: give it an absolute minAvailable, or use --disable-eviction"
        )
    ended = headcount.ended.get(budget.key, 0) if counts_pods(budget) else 0
    counted = f"{budget.expected_pods} pods" + (f", {ended} of which ended," if ended else "")
    return (
        f"{in_words(budget)} of {counted} never allows an eviction: "
        "add a replica, relax the budget temporarily, or use --disable-eviction"
    )


def _in_the_way(budget: Budget, stuck_pods: StuckPods) -> tuple[Pod, ...]:
    """The long unready pods of a budget that allows nothing as long as they stay so."""
    unready = stuck_pods.unready_under(budget)
    return () if stuck_pods.is_held_open_by(budget, unready) else unready


def _unhealthy(budget: Budget, unready: tuple[Pod, ...], *, itself: bool) -> str:
    policy = "set its unhealthyPodEvictionPolicy to AlwaysAllow, " if itself else ""
    names = shortened([pod.name for pod in unready], 1)
    return (
        f"needs {budget.desired_healthy} healthy pods and has {budget.current_healthy}, and {names} "
        f"has not been ready since {unready[0].unready_since}: fix it, {policy}or use --disable-eviction"
    )


def stuck_budgets(
    node: str, verdicts: Iterable[PodVerdict], index: BudgetIndex, scheduler: Scheduler, stuck_pods: StuckPods
) -> tuple[Blocker, ...]:
    """Budgets that will hold this node's drain up for ever, because the replacements they wait for fit nowhere else.

    A budget that allows fewer evictions than the node needs lets the rest follow as replacements become ready; those
    must run on other nodes, for this one is closed. The pods of all such budgets compete for the same room.
    """
    moving, budgets = movable(verdicts), dict[str, Budget]()
    groups: dict[str, list[Pod]] = defaultdict(list)
    for pod in moving:
        for budget in _asked(index.covering(pod)):
            if budget.disruptions_allowed > 0 and not bypasses(pod, budget) and not _way_given(pod):
                budgets[budget.key] = budget
                groups[budget.key].append(pod)
    at_once = {key: stuck_pods.most_away(budget) for key, budget in budgets.items()}
    tight = {key: pods for key, pods in groups.items() if len(pods) > at_once[key]}
    if not tight:
        return ()
    drain = _TightDrain(node, tight, at_once, scheduler)
    stuck = drain.left_waiting()
    if stuck:  # as well once all others have left: they may be drawn to those, or kept away by them
        own = {pod.uid for pods in tight.values() for pod in pods}
        with scheduler.departed([(node, pod) for pod in moving if pod.uid not in own]):
            still = drain.left_waiting()
        stuck = {key: why for key, why in stuck.items() if key in still}
    return tuple(
        Blocker(
            node,
            BlockerKind.FITS_NOWHERE,
            finding_of(key),
            f"allows {at_once[key]} of its {len(tight[key])} pods here to leave before replacements are ready, and "
            f"they fit nowhere else ({why}): make room on other nodes, relax the budget temporarily, or use "
            "--disable-eviction",
        )
        for key, why in stuck.items()
    )


def _asked(budgets: Sequence[Budget]) -> Sequence[Budget]:
    """The budgets of a pod that may let it go; of two of the server's, none ever allows anything."""
    return budgets if len(of_the_server(budgets)) < 2 else ()  # noqa: PLR2004


@dataclass(frozen=True, slots=True)
class _TightDrain:
    """A node's pods by the keys of budgets that let fewer be away `at_once` than it has of them."""

    node: str
    pods: Mapping[str, Sequence[Pod]]
    at_once: Mapping[str, int]
    scheduler: Scheduler

    def left_waiting(self) -> Mapping[str, str]:
        """Return the budgets whose pods never all leave, each with a pod that has no place, and why.

        Pods leave as their budgets let them, the largest first, for that leaves most room to the others.
        """
        keys: dict[str, list[str]] = defaultdict(list)
        for key, pods in self.pods.items():
            for pod in pods:
                keys[pod.uid].append(key)
        pods_by_uid = {pod.uid: pod for pods in self.pods.values() for pod in pods}
        staying = sorted(pods_by_uid.values(), key=lambda pod: (-pod.requests.cpu_milli, -pod.requests.memory))
        waiting, targets = list[Pod](), dict[str, str]()
        self.scheduler.close((self.node,))
        while going := self._let_go(staying, Counter(key for pod in waiting for key in keys[pod.uid]), keys):
            gone = {pod.uid for pod in going}
            staying = [pod for pod in staying if pod.uid not in gone]
            targets |= self.scheduler.put_anywhere([*waiting, *going])
            waiting = [pod for pod in (*waiting, *going) if not targets[pod.uid]]
        held = {key for pod in staying for key in keys[pod.uid]}
        stuck = {
            key: f"{pod.name}: {self.scheduler.why_nowhere(pod)}"
            for pod in reversed(waiting)
            for key in keys[pod.uid]
            if key in held
        }
        self.scheduler.move_back([(self.node, pods_by_uid[uid]) for uid in targets], targets)
        return stuck

    def _let_go(self, staying: Sequence[Pod], used: Counter[str], keys: Mapping[str, Sequence[str]]) -> list[Pod]:
        """Take out those for whom all their budgets have a permit left."""
        going = list[Pod]()
        for pod in staying:
            if all(used[key] < self.at_once[key] for key in keys[pod.uid]):
                used.update(keys[pod.uid])
                self.scheduler.take_out(pod)
                going.append(pod)
        return going
