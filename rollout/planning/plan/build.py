"""Make a plan from observations; equal inputs give the same plan."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from rollout.model.blocker_finding import AwayByOthers, NodeAway
from rollout.model.cluster import ClusterSnapshot, Node, Pod
from rollout.model.deployment import Deployment
from rollout.model.finding import DrainBlocked
from rollout.model.host import HostObservation, LoggedInUser
from rollout.model.own_node import OwnNode
from rollout.model.plan import (
    FORMAT_VERSION,
    Blocker,
    Exclusion,
    ExclusionReason,
    PlannedNode,
    PlanSummary,
    PlanWarning,
    RolloutPlan,
    TimeEstimate,
    Wave,
)
from rollout.model.policy import Policy, Selection, Strategy
from rollout.model.quantity import LONGEST, Duration
from rollout.model.text import natural_key
from rollout.model.timestamps import whole_second
from rollout.model.update_checks import LONGEST_SILENCE
from rollout.model.warning_finding import CoversNoPod, MoreUpdates, OtherAtWork, UsersLoggedIn
from rollout.model.wave_finding import WaveReason
from rollout.planning.drain.budgets import critical_budget, managing_owner
from rollout.planning.drain.forecast import DrainForecast, DrainForecaster
from rollout.planning.drain.scheduler import Scheduler
from rollout.planning.drain.surge import restart_rounds
from rollout.planning.eligibility.away import (
    AwayLimit,
    ControlPlane,
    away_reasons,
    copies_spare,
    copies_taken,
    storage_blockers,
)
from rollout.planning.eligibility.candidates import (
    Candidate,
    exclusion,
    is_control_plane,
    is_excluded_by_name,
)
from rollout.planning.eligibility.evidence import ProvenVersions
from rollout.planning.eligibility.judgement import EligibilityInputs, memory_warnings
from rollout.planning.eligibility.pools import Pools, pools_of
from rollout.planning.eligibility.rivals import nodes_being_upgraded, rival_blockers
from rollout.planning.eligibility.versions import KnownVersions
from rollout.planning.layout.pool_layout import Quota, lay_out_pools, quotas_of, with_pool_limits
from rollout.planning.layout.reasons import wave_reasons
from rollout.planning.layout.rolling import limit_node_groups, roll_parts, slow_first
from rollout.planning.layout.sharing import (
    MOST_ROUNDS,
    MoveCost,
    NodeDemand,
    Rate,
    UnbudgetedOwners,
    WaveLimits,
    pool_key,
    sum_of,
)
from rollout.planning.layout.waves import Batch, Layout
from rollout.planning.plan.document import with_id
from rollout.planning.play.pace import HANDOVER_SECONDS, NO_PAST, Pace, PastDurations
from rollout.planning.play.simulation import (
    Simulator,
    drain_timeout_seconds,
    slowest_ending_seconds,
)
from rollout.wording import cause_of
from rollout.wording.warnings import warning
from rollout.wording.waves import full_reason, table_note, table_note_without_delay

# How often a wave may use up a budget. More rounds make fewer waves with longer drains; large
# fleets have time for two.
_TRIED_ROUNDS = (1, 2, 3, 5, 8, 13, 21, MOST_ROUNDS)
_TRIED_ROUNDS_OF_MANY = (8, MOST_ROUNDS)
_MANY = 1000


class PlanInputs(Struct, frozen=True):
    snapshot: ClusterSnapshot
    observations: Mapping[str, HostObservation]
    # Before `--exclude` is applied.
    selected: tuple[str, ...]
    selection: Selection
    policy: Policy
    created_at: datetime
    past: PastDurations = NO_PAST
    own_node: OwnNode | None = None
    unattended: bool = False
    # Nodes that are tried although they failed.
    retried: frozenset[str] = frozenset()
    # Nodes in flight that an earlier process started, and this one finishes. They do not count as
    # away.
    taken_up: frozenset[str] = frozenset()
    # None if no evidence is required.
    proven: ProvenVersions | None = None
    longest_silence: Duration = LONGEST_SILENCE

    @property
    def eligibility(self) -> EligibilityInputs:
        return EligibilityInputs(
            now=self.snapshot.read_at,
            memory=self.snapshot.memory,
            selection=self.selection,
            failure_limit=self.policy.failure_limit(len(_included_nodes(self))),
            include_held=self.policy.include_held,
            unattended=self.unattended,
            retried=self.retried,
            proven=self.proven,
            own=self.own_node,
            versions=KnownVersions.of(self.snapshot.nodes, self.observations),
            longest_silence=self.longest_silence,
        )

    @property
    def pools(self) -> Pools:
        return pools_of(self.policy)


class Decisions(Struct, frozen=True):
    plan: RolloutPlan
    drains: Mapping[str, DrainForecast]
    waves: tuple[Batch, ...]
    limits: WaveLimits


def build_plan(inputs: PlanInputs) -> RolloutPlan:
    return decide(inputs).plan


def decide(inputs: PlanInputs) -> Decisions:
    forecaster = DrainForecaster.of(inputs.snapshot, inputs.policy)
    drains, exclusions = _forecast_eligible(inputs, forecaster)
    drains_by_node = {drain.node.name: drain for drain in drains}
    away = _away_besides(drains_by_node.keys(), inputs)
    included = _included_nodes(inputs)
    remaining_limit = _remaining_limit(away, included, inputs)
    quotas = quotas_of(inputs.pools, included, remaining_limit)
    leaving = {name: drain.leaving for name, drain in drains_by_node.items()}
    owners = UnbudgetedOwners.of(leaving, inputs.snapshot.pods, forecaster.index)
    # Blockers say if none may be away now.
    most_at_once = max(1, remaining_limit.most)
    layout, simulator = _lay_out(
        inputs, drains, forecaster, owners=owners, quotas=quotas, size=most_at_once
    )
    # Pods avoid the nodes that still wait for their reboot.
    if inputs.policy.prefer_no_schedule_taint:
        deferred = [entry.node for entry in exclusions if entry.reason is ExclusionReason.DEFERRED]
        forecaster.scheduler.taint((*leaving, *deferred))
    played = simulator.play(layout, forecaster.scheduler)
    reasons = wave_reasons(played.waves, layout.limits)
    waves = _planned_waves(played.waves, reasons, played.arrivals, drains_by_node)
    blockers = _blockers(inputs, drains, remaining_limit, away)
    warnings = [*_warnings(inputs, drains_by_node, owners, waves=waves, simulated=played.warnings)]
    # Others matter only if this plan reboots nodes, too.
    if drains:
        warnings += _warn_of_others_at_work(away, blockers)
    plan = RolloutPlan(
        format_version=FORMAT_VERSION,
        plan_id="",
        created_at=whole_second(inputs.created_at),
        cluster=inputs.snapshot.identity,
        selection=inputs.selection,
        policy=inputs.policy,
        waves=waves,
        excluded=tuple(sorted(exclusions, key=lambda entry: natural_key(entry.node))),
        blockers=blockers,
        warnings=tuple(warnings),
        summary=_summary(waves, layout.lower_bound),
        estimate=simulator.pace.estimate_rollout(waves) if waves else TimeEstimate(),
    )
    return Decisions(with_id(plan), drains_by_node, played.waves, layout.limits)


def _away_besides(planned: Collection[str], inputs: PlanInputs) -> Mapping[str, NodeAway]:
    ours = inputs.taken_up.union(planned)
    reasons = away_reasons(inputs.snapshot.nodes, inputs.policy, inputs.snapshot.read_at)
    return {name: reason for name, reason in reasons.items() if name not in ours}


def _remaining_limit(
    away: Mapping[str, NodeAway], included: Sequence[Node], inputs: PlanInputs
) -> AwayLimit:
    pool_by_node = inputs.pools.pool_by_node(included)
    limit = AwayLimit.of(inputs.policy, len(included), pool_by_node, inputs.snapshot.nodes)
    return limit.remaining_beside(away)


def _lay_out(
    inputs: PlanInputs,
    drains: Sequence[DrainForecast],
    forecaster: DrainForecaster,
    *,
    owners: UnbudgetedOwners,
    quotas: Mapping[str, Quota],
    size: int,
) -> tuple[Layout, Simulator]:
    pace = Pace.of(inputs.snapshot.nodes, inputs.past, inputs.snapshot.pods)
    limits = _wave_limits(inputs, drains, forecaster, size=size, owners=owners, pace=pace)
    limits = with_pool_limits(limits, quotas)
    surging = dict[str, Deployment]()
    for drain in drains:
        surging |= drain.surging
    simulator = Simulator(
        inputs.policy,
        inputs.pools,
        pace,
        limits=limits,
        index=forecaster.index,
        nodes={drain.node.name: drain.node for drain in drains},
        leaving={drain.node.name: drain.leaving for drain in drains},
        surging=surging,
        replicas=_replicas_of(surging, inputs.snapshot.pods),
    )
    demands = [_node_demand(drain, owners, inputs, pace=pace, limits=limits) for drain in drains]
    fastest = _fastest_layout(demands, quotas, simulator)
    return _roll_layout(fastest, simulator, forecaster.scheduler), simulator


def _replicas_of(
    surging: Mapping[str, Deployment], pods: Iterable[Pod]
) -> Mapping[str, Sequence[Pod]]:
    if not surging:
        return {}
    running = [pod for pod in pods if pod.node and not pod.finished and not pod.terminating]
    deployment_by_owner = dict[str, str]()
    for pod in running:
        if pod.owner and pod.uid in surging:
            deployment_by_owner[pod.owner.uid] = surging[pod.uid].key
    replicas: dict[str, list[Pod]] = defaultdict(list)
    for pod in sorted(running, key=lambda pod: pod.name):
        if pod.owner and pod.owner.uid in deployment_by_owner:
            replicas[deployment_by_owner[pod.owner.uid]].append(pod)
    return replicas


def _forecast_eligible(
    inputs: PlanInputs, forecaster: DrainForecaster
) -> tuple[list[DrainForecast], list[Exclusion]]:
    exclusions = list[Exclusion]()
    eligible = list[Candidate]()
    for candidate in _candidates(inputs):
        why_excluded = exclusion(candidate)
        if why_excluded:
            exclusions.append(why_excluded)
        else:
            eligible.append(candidate)
    drains = _forecasts(eligible, forecaster, inputs)
    if inputs.policy.skip_blocked:
        exclusions += [_exclude_blocked(drain) for drain in drains if drain.blockers]
        drains = [drain for drain in drains if not drain.blockers]
    return drains, exclusions


def _blockers(
    inputs: PlanInputs,
    drains: Sequence[DrainForecast],
    remaining_limit: AwayLimit,
    away: Mapping[str, NodeAway],
) -> tuple[Blocker, ...]:
    blockers = list[Blocker]()
    if drains:
        ignored = inputs.policy.gates.ignored_rivals
        blockers += rival_blockers(inputs.snapshot.coordinators, inputs.snapshot.nodes, ignored)
    planned_pools = {drain.pool for drain in drains}
    blockers += remaining_limit.blockers(away, inputs.policy, planned_pools)
    for drain in drains:
        blockers += drain.blockers
    return tuple(blockers)


def _fastest_layout(
    demands: Sequence[NodeDemand], quotas: Mapping[str, Quota], simulator: Simulator
) -> Layout:
    def lay_out_with(most_rounds: int) -> Layout:
        limits = simulator.limits.with_rounds_up_to(most_rounds)
        return lay_out_pools(demands, limits, simulator.pools, quotas)

    *fewer_rounds, most_rounds = _TRIED_ROUNDS if len(demands) <= _MANY else _TRIED_ROUNDS_OF_MANY
    with_most_rounds = lay_out_with(most_rounds)
    lower_bound = with_most_rounds.lower_bound
    layouts = list[Layout]()
    for rounds in fewer_rounds:
        layout = replace(lay_out_with(rounds), lower_bound=lower_bound)
        layouts.append(layout)
        has_fewest_waves = len(layout.waves) <= lower_bound
        if has_fewest_waves:
            # More rounds would only lengthen drains.
            return min(layouts, key=simulator.estimated_seconds)
    return min([*layouts, with_most_rounds], key=simulator.estimated_seconds)


def _is_rolling(wave: Batch, pools: Pools) -> bool:
    return pools.rules(wave.demands[0].pool).strategy is Strategy.ROLLING


def _roll_layout(layout: Layout, simulator: Simulator, scheduler: Scheduler) -> Layout:
    def is_rolling(wave: Batch) -> bool:
        return _is_rolling(wave, simulator.pools)

    if not any(map(is_rolling, layout.waves)):
        return layout
    parts = list[Batch]()
    for are_rolling, consecutive in groupby(layout.waves, is_rolling):
        waves = list(consecutive)
        parts += roll_parts(waves, simulator.limits) if are_rolling else waves
    limited = [limit_node_groups(part, simulator.leaving, scheduler) for part in parts]
    ordered = tuple(slow_first(part, simulator.seconds_away(part)) for part in limited)
    return replace(layout, waves=ordered, lower_bound=len(ordered))


def _warnings(
    inputs: PlanInputs,
    drains_by_node: Mapping[str, DrainForecast],
    owners: UnbudgetedOwners,
    waves: Sequence[Wave],
    simulated: Iterable[PlanWarning],
) -> Iterator[PlanWarning]:
    # A blocker says more than a warning about the same object.
    blocked = set[tuple[str, str]]()
    for name, drain in drains_by_node.items():
        yield from drain.warnings
        yield from owners.warnings_of(name)
        blocked.update((name, blocked_object) for blocked_object in drain.blocked_objects())
    for entry in simulated:
        if (entry.node, entry.object) not in blocked:
            yield entry
    planned = [node for wave in waves for node in wave.nodes]
    yield from memory_warnings(planned, inputs.eligibility)
    for node in planned:
        yield from _warn_of_node(node, drains_by_node[node.name].facts.users)
    yield from _warn_of_idle_rules(inputs)


def _warn_of_node(
    node: PlannedNode, users: tuple[LoggedInUser, ...] | None
) -> Iterator[PlanWarning]:
    node_object = f"node/{node.name}"
    if users:
        yield warning(node.name, node_object, UsersLoggedIn(node.name, tuple(map(str, users))))
    if node.next_version:
        more_updates = MoreUpdates(node.staged_version, node.next_version)
        yield warning(node.name, node_object, more_updates)


def _warn_of_others_at_work(
    away: Mapping[str, NodeAway], blockers: Iterable[Blocker]
) -> Iterator[PlanWarning]:
    blocked_objects = {blocker.object for blocker in blockers}
    for name, reason in away.items():
        node_object = f"node/{name}"
        if isinstance(reason, AwayByOthers) and node_object not in blocked_objects:
            yield warning(name, node_object, OtherAtWork(reason))


def _summary(waves: Sequence[Wave], lower_bound: int) -> PlanSummary:
    nodes = [node for wave in waves for node in wave.nodes]
    pods = sum(node.evict for node in nodes)
    # Pods that earlier drains have moved to a node are evicted again with it.
    repeated_evictions = sum(node.arrivals for node in nodes)
    return PlanSummary(
        nodes=len(nodes),
        waves=len(waves),
        waves_lower_bound=lower_bound,
        pods_to_move=pods,
        expected_evictions=pods + repeated_evictions,
    )


def _warn_of_idle_rules(inputs: PlanInputs) -> Iterator[PlanWarning]:
    for rule in inputs.policy.drain.critical:
        budget = critical_budget(rule, inputs.snapshot.pods)
        if not budget.expected_pods:
            yield warning("", budget.key, CoversNoPod())


def _planned_waves(
    batches: Sequence[Batch],
    reasons: Sequence[WaveReason],
    arrivals: Mapping[str, int],
    drains_by_node: Mapping[str, DrainForecast],
) -> tuple[Wave, ...]:
    planned = list[Wave]()
    for index, (batch, reason) in enumerate(zip(batches, reasons, strict=True), start=1):
        nodes = [drains_by_node[name].planned_node(arrivals[name]) for name in batch.names]
        planned.append(
            Wave(
                index=index,
                nodes=tuple(nodes),
                because=full_reason(reason),
                note=table_note(reason),
                estimate=batch.estimate,
                rolling=batch.rolling,
                limit=table_note_without_delay(reason),
            )
        )
    return tuple(planned)


def _selected_nodes(inputs: PlanInputs) -> list[Node]:
    names = set(inputs.selected)
    nodes = [node for node in inputs.snapshot.nodes if node.name in names]
    return sorted(nodes, key=lambda node: natural_key(node.name))


def _candidates(inputs: PlanInputs) -> Iterator[Candidate]:
    pools = inputs.pools
    eligibility = inputs.eligibility
    upgrader_by_node = nodes_being_upgraded(inputs.snapshot.pods)
    for node in _selected_nodes(inputs):
        pool = pools.pool_of(node.labels)
        yield Candidate(
            node,
            observation=inputs.observations.get(node.name),
            policy=pools.rules(pool),
            inputs=eligibility,
            pool=pool,
            upgraded_by=upgrader_by_node.get(node.name, ""),
        )


def _forecasts(
    candidates: Iterable[Candidate], forecaster: DrainForecaster, inputs: PlanInputs
) -> list[DrainForecast]:
    snapshot = inputs.snapshot
    now = snapshot.read_at
    control_plane = ControlPlane.of(snapshot.nodes, snapshot.pods, inputs.policy, now)
    away = away_reasons(snapshot.nodes, inputs.policy, now).keys() - inputs.taken_up
    forecasts = list[DrainForecast]()
    for candidate in candidates:
        facts = candidate.facts
        # For the type checker: eligible candidates have facts.
        if facts is None:
            continue
        drain = forecaster.forecast(candidate, facts)
        name = drain.node.name
        blockers = (
            *drain.blockers,
            *control_plane.blockers(name),
            *storage_blockers(name, snapshot.stored, away, inputs.taken_up),
        )
        forecasts.append(replace(drain, blockers=blockers))
    return forecasts


def _exclude_blocked(drain: DrainForecast) -> Exclusion:
    blocker = drain.blockers[0]
    message = cause_of(DrainBlocked(blocker.object, blocker.message))
    return Exclusion(drain.node.name, ExclusionReason.BLOCKED, message, drain.pool)


def _included_nodes(inputs: PlanInputs) -> list[Node]:
    nodes = _selected_nodes(inputs)
    return [node for node in nodes if not is_excluded_by_name(node.name, inputs.selection)]


def _wave_limits(
    inputs: PlanInputs,
    drains: Sequence[DrainForecast],
    forecaster: DrainForecaster,
    *,
    size: int,
    owners: UnbudgetedOwners,
    pace: Pace,
) -> WaveLimits:
    rates = _budget_rates(drains, forecaster, inputs.policy, pace)
    allowed = dict[str, int]()
    for key, budget in forecaster.budgets.items():
        allowed[key] = budget.disruptions_allowed
    # A budget that allows no eviction now may allow some later.
    allowed |= {key: rate.permits for key, rate in rates.items()}
    allowed |= owners.allowed
    allowed |= copies_spare(inputs.snapshot.stored)
    # A controller moves its pods off one node at a time.
    for drain in drains:
        allowed |= dict.fromkeys(sorted(drain.controllers.awaited), 1)
    return WaveLimits(size, allowed, rates, _rounds_by_budget(rates, drains, inputs.pools))


def _rounds_by_budget(
    rates: Mapping[str, Rate], drains: Iterable[DrainForecast], pools: Pools
) -> Mapping[str, int]:
    """Return how many rounds fit in half of the shortest timeout.

    Drains may take longer than estimated.
    """
    timeouts = [drain_timeout_seconds(pools.rules(drain.pool)) for drain in drains]
    half_timeout = min(timeouts, default=LONGEST) / 2
    return {key: rate.rounds_within(half_timeout) for key, rate in rates.items()}


def _budget_rates(
    drains: Iterable[DrainForecast], forecaster: DrainForecaster, policy: Policy, pace: Pace
) -> Mapping[str, Rate]:
    rates = dict[str, Rate]()
    for key, pods in _pods_by_budget(drains).items():
        budget = forecaster.budgets[key]
        permits = forecaster.headcount.permits(budget)
        longest_grace = policy.drain.grace_of(max(pod.grace_period for pod in pods))
        kind_by_owner = {pod.owner.uid: pod.owner.kind for pod in pods if pod.owner}
        rate = pace.budget_rate(permits, longest_grace, kind_by_owner)
        is_closed = budget.disruptions_allowed <= 0
        if is_closed and managing_owner(budget, pods) is not None:
            rate = replace(rate, handover_seconds=HANDOVER_SECONDS)
        rates[key] = rate
    return rates


def _pods_by_budget(drains: Iterable[DrainForecast]) -> Mapping[str, Sequence[Pod]]:
    pods_by_budget: dict[str, list[Pod]] = defaultdict(list)
    for drain in drains:
        for pod, budgets in drain.guarded_pods():
            for budget in budgets:
                pods_by_budget[budget].append(pod)
    return pods_by_budget


def _slowest_move_seconds(drain: DrainForecast, policy: Policy, pace: Pace) -> int:
    """A surging pod ends only once it has been replaced."""
    longest_restart = 0
    for pod in drain.leaving:
        if pod.owner and pod.uid in drain.surging:
            rounds = restart_rounds(drain.surging[pod.uid])
            restart = rounds * pace.starting_seconds((pod.owner.uid,))
            longest_restart = max(longest_restart, restart)
    return longest_restart + slowest_ending_seconds((drain.leaving,), policy.drain, pace)


def _node_demand(
    drain: DrainForecast,
    owners: UnbudgetedOwners,
    inputs: PlanInputs,
    pace: Pace,
    limits: WaveLimits,
) -> NodeDemand:
    name = drain.node.name
    policy = inputs.pools.rules(drain.pool)
    unbudgeted = owners.loads.get(name, {})
    copies = copies_taken(name, inputs.snapshot.stored)
    controllers = {key: 1 for key in sorted(drain.controllers.keys) if key in limits.allowed}
    pool = pool_key(drain.pool)
    pool_load = {pool: 1} if pool in limits.allowed else {}
    move_cost = MoveCost()
    # Moving few pods first pays only if pods avoid waiting nodes.
    if policy.prefer_no_schedule_taint:
        cpu_milli = sum(pod.requests.cpu_milli for pod in drain.leaving)
        move_cost = MoveCost(len(drain.leaving), cpu_milli)
    return NodeDemand(
        name=name,
        group=drain.node.labels.get(policy.spread_by, ""),
        control_plane=is_control_plane(drain.node, policy),
        load=sum_of((drain.load, unbudgeted, copies, controllers, pool_load)),
        kept_permits=drain.kept_permits,
        ending_seconds=max(drain.wait_seconds, _slowest_move_seconds(drain, policy, pace)),
        move_cost=move_cost,
        pool=drain.pool,
        wait_seconds=drain.wait_seconds,
        completed_in=drain.completed_in,
    )
