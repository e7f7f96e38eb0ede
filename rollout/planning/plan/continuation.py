"""How an interrupted rollout goes on: one plan of what was begun and what was not, by the stricter of two policies.

Where neither of two values is stricter than the other, as of times to wait, the first policy's stays.
"""

from collections.abc import Container, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeVar

from rollout.model import marks
from rollout.model.cluster import SELF_SET, ClusterSnapshot, Node, ReadyState
from rollout.model.gates import AlertPolicy, GatePolicy, HookPolicy, WindowPolicy
from rollout.model.placement import CORDON
from rollout.model.plan import BlockerKind, PlannedNode, RolloutPlan, Wave
from rollout.model.policy import ControlPlaneOrder, CourtesyPolicy, DrainPolicy, Policy, Pool
from rollout.model.quantity import Count

_BECAUSE = "begun before the interruption"


def remaining_ramp(sizes: Sequence[int], taken: int) -> tuple[Count, ...]:
    """A ramp of these sizes once that many nodes have taken it; the last size is for all further nodes."""
    steps, taken = list(sizes), max(0, taken)
    while len(steps) > 1 and taken >= steps[0]:
        taken -= steps.pop(0)
    if len(steps) > 1:
        steps[0] -= taken
    return tuple(map(Count, steps))


def once_back(snapshot: ClusterSnapshot, names: Container[str]) -> ClusterSnapshot:
    """The cluster once these nodes are given back, which are under way: that comes before any other is begun.

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
    """The plan with what the one `before` left out in the first place: its end accounts for that, whoever brings it.

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
    """The plan without the blockers beside which its operator began it: whoever goes on is not asked about them.

    No rollout begins beside another coordinator: a record that says so was forged.
    """
    named = before.blockers if before else ()
    accepted = {(item.node, item.kind, item.object) for item in named if item.kind is not BlockerKind.RIVAL}
    blockers = tuple(item for item in plan.blockers if (item.node, item.kind, item.object) not in accepted)
    return replace(plan, blockers=blockers)


T = TypeVar("T")


def stricter(standing: Policy, today: Policy, nodes: int) -> Policy:
    """The rules of `standing`, and those of `today` wherever they allow less; percentages are of so many `nodes`.

    The commands are today's: what runs on hosts is this process's own in any case. So are the windows, where it has
    any; every freeze of either holds. Of the sources that may ask for a reboot those count that both name.
    """
    excludes = ControlPlaneOrder.EXCLUDE in (standing.control_plane, today.control_plane)
    return replace(
        standing,
        max_unavailable=_fewer(standing.max_unavailable, today.max_unavailable, nodes),
        max_failures=_fewer(standing.max_failures, today.max_failures, nodes),
        canary=max(standing.canary, today.canary),
        ramp=_slower(standing.ramp, today.ramp, nodes),
        spread_by=today.spread_by or standing.spread_by,
        control_plane=ControlPlaneOrder.EXCLUDE if excludes else standing.control_plane,
        control_plane_selector=today.control_plane_selector or standing.control_plane_selector,
        include_held=standing.include_held and today.include_held,
        include_cordoned=standing.include_cordoned and today.include_cordoned,
        reboot_idle=standing.reboot_idle and today.reboot_idle,
        drain=_gentler(standing.drain, today.drain),
        settle_timeout=max(standing.settle_timeout, today.settle_timeout),
        exclude_from_load_balancers=max(standing.exclude_from_load_balancers, today.exclude_from_load_balancers),
        own_reboot_command=today.own_reboot_command,
        detect=tuple(source for source in standing.detect if source in today.detect),
        gates=_gates(standing.gates, today.gates),
        courtesy=_more_courteous(standing.courtesy, today.courtesy),
        pools=tuple(_pool(pool, standing, today, nodes) for pool in standing.pools),
    )


def timed_as(rules: Policy, today: Policy) -> Policy:
    """The same with today's time-outs: of a time to wait neither a longer nor a shorter one is stricter."""
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


def is_labelled_otherwise(standing: Policy, today: Policy) -> bool:
    """Whether nodes had labels for their turn that today's rules do not name: no other node may get them."""
    labels = (policy.courtesy.pre_reboot_node_labels for policy in (standing, today))
    return not set(next(labels)) <= set(next(labels))


def _fewer(one: Count, other: Count, nodes: int) -> Count:
    return min(one, other, key=lambda count: count.of(nodes))


def _slower(one: tuple[Count, ...], other: tuple[Count, ...], nodes: int) -> tuple[Count, ...]:
    """The smaller step at each place; the last of a ramp holds for all that follow, and no ramp is no limit."""
    if not one or not other:
        return one or other
    steps = zip_longest(one, other)
    return tuple(_fewer(first or one[-1], second or other[-1], nodes) for first, second in steps)


def _gentler(one: DrainPolicy, other: DrainPolicy) -> DrainPolicy:
    waits = (one.skip_wait_for_delete_timeout, other.skip_wait_for_delete_timeout)
    return replace(
        one,
        grace_period=_longer(one.grace_period, other.grace_period),
        force=one.force and other.force,
        delete_emptydir_data=one.delete_emptydir_data and other.delete_emptydir_data,
        disable_eviction=one.disable_eviction and other.disable_eviction,
        pod_selector=one.pod_selector if one.pod_selector == other.pod_selector else "",
        skip_wait_for_delete_timeout=max(waits) if all(waits) else 0,
        critical=_both(one.critical, other.critical),
    )


def _longer(one: int | None, other: int | None) -> int | None:
    """The longer grace period; None is what a pod asks for itself."""
    return None if one is None or other is None else max(one, other)


def _gates(one: GatePolicy, other: GatePolicy) -> GatePolicy:
    return replace(
        one,
        windows=_windows(one.windows, other.windows),
        hooks=_hooks(one.hooks, other.hooks),
        alerts=_alerts(one.alerts, other.alerts),
        blocking_pods=_both(one.blocking_pods, other.blocking_pods),
        health_checks=max(one.health_checks, other.health_checks),
        soak=max(one.soak, other.soak),
        ignored_rivals=tuple(name for name in one.ignored_rivals if name in other.ignored_rivals),
    )


def _more_courteous(one: CourtesyPolicy, other: CourtesyPolicy) -> CourtesyPolicy:
    """What nodes have for their turn stays the first's, which may have written it on some and has to take it away.

    What they keep after it is what both name.
    """
    return replace(
        one,
        post_reboot_node_labels=tuple(
            label for label in one.post_reboot_node_labels if label in other.post_reboot_node_labels
        ),
        drain_delay=max(one.drain_delay, other.drain_delay),
        reboot_delay=max(one.reboot_delay, other.reboot_delay),
    )


def _windows(one: WindowPolicy, other: WindowPolicy) -> WindowPolicy:
    return WindowPolicy(other.windows or one.windows, one.wait and other.wait, _both(one.freezes, other.freezes))


def _hooks(one: HookPolicy, other: HookPolicy) -> HookPolicy:
    asks = one if one.before or one.after else other
    return replace(asks, before=_both(one.before, other.before), after=_both(one.after, other.after))


def _alerts(one: AlertPolicy, other: AlertPolicy) -> AlertPolicy:
    """The filters only where they agree: an alert that either counts, counts."""
    if not one.url or not other.url:
        return one if one.url else other
    alike = replace(one, url="") == replace(other, url="")
    return AlertPolicy(
        other.url,
        one.pattern if alike else "",
        one.match_only and alike,
        one.matchers if alike else (),
    )


def _both(one: tuple[T, ...], other: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys((*one, *other)))


def _pool(pool: Pool, standing: Policy, today: Policy, nodes: int) -> Pool:
    """A pool with the stricter of its rules and those of today's pool of the same name, whose None is the rollout's."""
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
