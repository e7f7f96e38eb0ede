"""How an interrupted rollout goes on: one plan of what was begun and what was not, by the stricter of two policies.

Where neither of two values is stricter than the other, as of times to wait, the first policy's stays.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from operator import and_
from typing import Any, TypeVar

from rollout.model import marks
from rollout.model.cluster import SELF_SET, ClusterSnapshot, Node, ReadyState
from rollout.model.gates import AlertPolicy, HookPolicy
from rollout.model.placement import CORDON
from rollout.model.plan import BlockerKind, PlannedNode, RolloutPlan, Wave
from rollout.model.policy import ControlPlaneOrder, Policy, Pool
from rollout.model.quantity import Count

_BECAUSE = "begun before the interruption"


def remaining_ramp(sizes: Sequence[int], taken: int) -> tuple[Count, ...]:
    """Return a ramp of these sizes once that many nodes have taken it; the last size is for all further nodes."""
    steps, taken = list(sizes), max(0, taken)
    while len(steps) > 1 and taken >= steps[0]:
        taken -= steps.pop(0)
    if len(steps) > 1:
        steps[0] -= taken
    return tuple(map(Count, steps))


def once_back(snapshot: ClusterSnapshot, names: Container[str]) -> ClusterSnapshot:
    """Return the cluster once these nodes are given back, which are under way: that comes before any other is begun.

    So they are well, and take pods again where the cordon is ours.
    """
    nodes = tuple(_given_back(node) if node.name in names else node for node in snapshot.nodes)
    pods = tuple(replace(pod, ready=True) if pod.mirror and pod.node in names else pod for pod in snapshot.pods)
    return replace(snapshot, nodes=nodes, pods=pods)


def _given_back(node: Node) -> Node:
    cordoned = node.unschedulable and node.annotations.get(marks.CORDONED_BY_US) != "true"
    kept = {CORDON.key} if cordoned else set()
    taints = tuple(taint for taint in node.taints if taint.key in kept or not taint.key.startswith(SELF_SET))
    annotations = {name: value for name, value in node.annotations.items() if name not in marks.TRANSIENT}
    return replace(node, ready=ReadyState.TRUE, unschedulable=cordoned, taints=taints, annotations=annotations)


def joined(run: str, begun: tuple[PlannedNode, ...], fresh: RolloutPlan) -> RolloutPlan:
    """One plan under the run's own id: first the nodes under way, then the waves of the others.

    That nodes are away is no reason not to begin: those under way are among them, and waiting is what waves do.
    """
    first = (Wave(1, begun, _BECAUSE, _BECAUSE),) if begun else ()
    waves = (*first, *(replace(wave, index=wave.index + len(first)) for wave in fresh.waves))
    summary = replace(
        fresh.summary,
        nodes=fresh.summary.nodes + len(begun),
        waves=len(waves),
        waves_lower_bound=min(len(waves), fresh.summary.waves_lower_bound + len(first)),
    )
    blockers = tuple(blocker for blocker in fresh.blockers if not (begun and blocker.object.startswith("node/")))
    return replace(fresh, plan_id=run, waves=waves, summary=summary, blockers=blockers)


def with_earlier_exclusions(plan: RolloutPlan, before: RolloutPlan | None, present: Container[str]) -> RolloutPlan:
    """Return the plan with what the one `before` left out: its end accounts for that, whoever brings it.

    `present` are the Nodes of the cluster.
    """
    known_nodes = {node.name for node in plan.nodes} | {exclusion.node for exclusion in plan.excluded}
    carried = tuple(
        replace(exclusion, message=f"when the rollout was planned: {exclusion.message}")
        for exclusion in (before.excluded if before else ())
        if exclusion.node in present and exclusion.node not in known_nodes
    )
    return replace(plan, excluded=(*plan.excluded, *carried))


def without_accepted_blockers(plan: RolloutPlan, before: RolloutPlan | None) -> RolloutPlan:
    """Return the plan without the blockers beside which its operator began it: whoever goes on is not asked about them.

    No rollout begins beside another coordinator: a record that says so was forged.
    """
    named = before.blockers if before else ()
    accepted = {(item.node, item.kind, item.object) for item in named if item.kind is not BlockerKind.RIVAL}
    blockers = tuple(item for item in plan.blockers if (item.node, item.kind, item.object) not in accepted)
    return replace(plan, blockers=blockers)


T = TypeVar("T")
_Choice = Callable[[Any, Any], Any]


def stricter(standing: Policy, today: Policy, nodes: int) -> Policy:
    """Return the rules of `standing`, and those of `today` where they allow less; percentages are of so many `nodes`.

    The commands are today's: what runs on hosts is this process's own in any case. So are the windows, where it has
    any; every freeze of either holds. Of the sources that may ask for a reboot those count that both name.
    """
    merged = _merged(standing, today, _choices(nodes))
    return replace(merged, pools=tuple(_pool(pool, standing, today, nodes) for pool in standing.pools))


def _merged(one: T, other: T, choices: Mapping[str, _Choice]) -> T:
    """Return the first with what is chosen of both for each of these fields."""
    chosen = {name: choose(getattr(one, name), getattr(other, name)) for name, choose in choices.items()}
    return replace(one, **chosen)  # type: ignore[type-var]


def _choices(nodes: int) -> Mapping[str, _Choice]:
    """Return what is stricter of each rule."""
    return {
        "max_unavailable": partial(_fewer, nodes=nodes),
        "max_failures": partial(_fewer, nodes=nodes),
        "canary": max,
        "ramp": partial(_slower, nodes=nodes),
        "spread_by": _latter,
        "control_plane": lambda one, other: other if other is ControlPlaneOrder.EXCLUDE else one,
        "control_plane_selector": _latter,
        "include_held": and_,
        "include_cordoned": and_,
        "reboot_idle": and_,
        "drain": partial(_merged, choices=_DRAIN),
        "settle_timeout": max,
        "exclude_from_load_balancers": max,
        "own_reboot_command": lambda _one, other: other,
        "detect": _common,
        "gates": partial(_merged, choices=_GATES),
        "courtesy": partial(_merged, choices=_COURTESY),
    }


def timed_as(rules: Policy, today: Policy) -> Policy:
    """Return the same with today's time-outs: of a time to wait neither a longer nor a shorter one is stricter."""
    pools = {pool.name: pool for pool in today.pools}
    return replace(
        rules,
        drain=replace(rules.drain, timeout=today.drain.timeout),
        reboot_timeout=today.reboot_timeout,
        ready_timeout=today.ready_timeout,
        gates=replace(rules.gates, timeout=today.gates.timeout),
        pools=tuple(_timed_as(pool, pools.get(pool.name)) for pool in rules.pools),
    )


def _timed_as(pool: Pool, today: Pool | None) -> Pool:
    """Where there is no such pool any more, the rollout's hold for it."""
    times = (today.drain_timeout, today.reboot_timeout, today.ready_timeout) if today else (None, None, None)
    drain, reboot, ready = times
    return replace(pool, drain_timeout=drain, reboot_timeout=reboot, ready_timeout=ready)


def is_regrouped(standing: Policy, today: Policy) -> bool:
    """Whether nodes belong to other pools now, or the pools stand in another order: their rules cannot be compared."""
    layouts = ([(pool.name, pool.selector, pool.after) for pool in policy.pools] for policy in (standing, today))
    return next(layouts) != next(layouts)


def _latter(one: T, other: T) -> T:
    """Return the second where it says anything."""
    return other or one


def _fewer(one: Count, other: Count, nodes: int) -> Count:
    return min(one, other, key=lambda count: count.of(nodes))


def _slower(one: tuple[Count, ...], other: tuple[Count, ...], nodes: int) -> tuple[Count, ...]:
    """Return the smaller step at each place; the last of a ramp holds for all that follow, and no ramp is no limit."""
    if not one or not other:
        return one or other
    steps = zip_longest(one, other)
    return tuple(_fewer(first or one[-1], second or other[-1], nodes) for first, second in steps)


def _longer(one: int | None, other: int | None) -> int | None:
    """Return the longer grace period; None is what a pod asks for itself."""
    return None if one is None or other is None else max(one, other)


def _both(one: tuple[T, ...], other: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys((*one, *other)))


def _common(one: tuple[T, ...], other: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(entry for entry in one if entry in other)


def _hooks(one: HookPolicy, other: HookPolicy) -> HookPolicy:
    asks = one if one.before or one.after else other
    return replace(asks, before=_both(one.before, other.before), after=_both(one.after, other.after))


def _alerts(one: AlertPolicy, other: AlertPolicy) -> AlertPolicy:
    """Return the filters only where they agree: an alert that either counts, counts."""
    if not one.url or not other.url:
        return one if one.url else other
    return other if replace(one, url="") == replace(other, url="") else AlertPolicy(other.url)


_DRAIN: Mapping[str, _Choice] = {
    "grace_period": _longer,
    "force": and_,
    "delete_emptydir_data": and_,
    "disable_eviction": and_,
    "pod_selector": lambda one, other: one if one == other else "",
    "skip_wait_for_delete_timeout": lambda one, other: max(one, other) if one and other else 0,
    "critical": _both,
}
_GATES: Mapping[str, _Choice] = {
    "windows": partial(_merged, choices={"windows": _latter, "wait": and_, "freezes": _both}),
    "hooks": _hooks,
    "alerts": _alerts,
    "blocking_pods": _both,
    "health_checks": max,
    "soak": max,
    "ignored_rivals": _common,
}
_COURTESY: Mapping[str, _Choice] = {
    "drain_delay": max,
    "reboot_delay": max,
}


def _pool(pool: Pool, standing: Policy, today: Policy, nodes: int) -> Pool:
    """Return a pool with the stricter of its rules and those of today's of that name, whose None is the rollout's."""
    other = next((named for named in today.pools if named.name == pool.name), Pool(pool.name, pool.selector))
    limits = [count for count in (pool.max_unavailable, other.max_unavailable) if count is not None]
    canaries = (_own(pool.canary, standing.canary), _own(other.canary, today.canary))
    ramps = (_own(pool.ramp, standing.ramp), _own(other.ramp, today.ramp))
    return replace(
        pool,
        max_unavailable=min(limits, key=lambda count: count.of(nodes), default=None),
        canary=max(canaries),
        ramp=_slower(*ramps, nodes),
        spread_by=other.spread_by or today.spread_by or pool.spread_by,
        window=other.window or pool.window,
        reboot_idle=_own(pool.reboot_idle, standing.reboot_idle) and _own(other.reboot_idle, today.reboot_idle),
    )


def _own(rule: T | None, rollouts: T) -> T:
    return rollouts if rule is None else rule
