"""From what was gathered to a plan. Pure: equal inputs give an equal plan, to the byte."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import groupby

from rollout.model.cluster import ClusterSnapshot, Node
from rollout.model.host import HostObservation
from rollout.model.own_node import OwnNode
from rollout.model.plan import (
    FORMAT_VERSION,
    Blocker,
    Exclusion,
    ExclusionReason,
    PlanSummary,
    PlanWarning,
    RolloutPlan,
    TimeEstimate,
    WarningKind,
    Wave,
)
from rollout.model.policy import Policy, Selection, Strategy
from rollout.model.quantity import LONGEST
from rollout.model.text import counted, grouped, natural_key, shortened, whole_second
from rollout.planning.drain.budgets import critical_budget
from rollout.planning.drain.forecast import Drainable, DrainForecaster
from rollout.planning.drain.scheduler import Scheduler
from rollout.planning.eligibility.away import (
    AwayLimit,
    ControlPlane,
    copies_spare,
    copies_taken,
    is_away,
    storage_blockers,
)
from rollout.planning.eligibility.candidates import Candidate, excluded_by_name, exclusion, is_control_plane
from rollout.planning.eligibility.evidence import Proven
from rollout.planning.eligibility.memory import Rules, memory_warnings
from rollout.planning.eligibility.pools import Pools, pools_of
from rollout.planning.eligibility.rivals import nodes_being_upgraded, rivals
from rollout.planning.eligibility.versions import KnownVersions
from rollout.planning.layout.pool_layout import Quota, lay_out_pools, quotas_of, within
from rollout.planning.layout.reasons import with_reasons
from rollout.planning.layout.rolling import roll_parts, slow_first, without_crowding
from rollout.planning.layout.sharing import MOST_ROUNDS, Limits, NodeDemand, Owners, pool_key, sum_of
from rollout.planning.layout.waves import Batch, Layout
from rollout.planning.plan.document import sealed
from rollout.planning.play.pace import NO_PAST, Pace, Past
from rollout.planning.play.simulation import Simulator, slowest_ending, timeout

_DEFERRED = ExclusionReason.DEFERRED
_NAMED_USERS = 3
# How often a wave may use a budget up, in the layouts that are tried: more rounds make fewer waves of longer drains.
# With many nodes there is time for two layouts.
_ROUNDS, _ROUNDS_OF_MANY, _MANY = (1, 2, 3, 5, 8, 13, 21, MOST_ROUNDS), (8, MOST_ROUNDS), 1000


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """All that a plan is made from. `past` is what earlier runs took, `own_node` the node under this process.

    `observations` are by Node name; `selected` are the names that the selector and `--node` chose, before `--exclude`;
    `created_at` is the reading of a clock, taken outside. `unattended`: nobody has decided on this plan. `retried` are
    nodes that failed before, and are to be tried again; `begun` are under way: no reason not to begin. `proven` is what
    another cluster has proved of versions, None where it need not.
    """

    snapshot: ClusterSnapshot
    observations: Mapping[str, HostObservation]
    selected: tuple[str, ...]
    selection: Selection
    policy: Policy
    created_at: datetime
    past: Past = NO_PAST
    own_node: OwnNode | None = None
    unattended: bool = False
    retried: frozenset[str] = frozenset()
    begun: frozenset[str] = frozenset()
    proven: Proven | None = None

    @property
    def rules(self) -> Rules:
        """Return the rules that decide for each node whether it takes part."""
        return Rules(
            now=self.snapshot.read_at,
            memory=self.snapshot.memory,
            selection=self.selection,
            limit=self.policy.failures_allowed(len(_chosen(self))),
            include_held=self.policy.include_held,
            unattended=self.unattended,
            retried=self.retried,
            proven=self.proven,
            own=self.own_node,
            versions=KnownVersions.of(self.snapshot.nodes, self.observations),
        )

    @property
    def pools(self) -> Pools:
        """Whose rules hold for which node."""
        return pools_of(self.policy)


@dataclass(frozen=True, slots=True)
class Decisions:
    """A plan, and what it was decided by."""

    plan: RolloutPlan
    drainable: Mapping[str, Drainable]
    waves: tuple[Batch, ...]
    limits: Limits


def build_plan(inputs: PlanInputs) -> RolloutPlan:
    """Decide who takes part, in which waves, and what stands in the way."""
    return decide(inputs).plan


def decide(inputs: PlanInputs) -> Decisions:
    """Return the plan with what explains it."""
    pools, judged = inputs.pools, [(candidate, exclusion(candidate)) for candidate in _candidates(inputs)]
    exclusions = [entry for _, entry in judged if entry]
    forecaster = DrainForecaster.of(inputs.snapshot, inputs.policy)
    drainable = _forecasts([candidate for candidate, entry in judged if not entry], forecaster, inputs)
    if inputs.policy.skip_blocked:
        exclusions += [_skipped(item) for item in drainable if item.blockers]
        drainable = [item for item in drainable if not item.blockers]
    items = {item.node.name: item for item in drainable}
    # a node that is away uses up the limit whatever the rollout does, but for those that it takes itself
    taken = inputs.begun.union(items)
    away = [node for node in inputs.snapshot.nodes if is_away(node) and node.name not in taken]
    chosen = pools.members(_chosen(inputs))
    left = AwayLimit.of(inputs.policy, len(chosen), chosen, inputs.snapshot.nodes).beside(away)
    quotas = quotas_of(pools, _chosen(inputs), left)
    leaving = {name: item.leaving for name, item in items.items()}
    owners = Owners.of(leaving, inputs.snapshot.pods, forecaster.index)
    pace = Pace.of(inputs.snapshot.nodes, inputs.past, inputs.snapshot.pods)
    limits = within(quotas, _limits(max(1, left.most), owners, forecaster, inputs, drainable, pace))
    demands = [_node_demand(item, owners, inputs, pace, limits) for item in drainable]
    nodes = {name: item.node for name, item in items.items()}
    simulator = Simulator(inputs.policy, pools, pace, limits, forecaster.index, nodes, leaving)
    layout = _roll_layout(_layout(demands, quotas, simulator), simulator, forecaster.scheduler)
    if inputs.policy.prefer_no_schedule_taint:
        forecaster.scheduler.taint((*leaving, *(entry.node for entry in exclusions if entry.reason is _DEFERRED)))
    forecast = simulator.play(layout, forecaster.scheduler)
    limits = layout.limits
    waves = with_reasons(forecast.waves, limits)
    planned = _planned(waves, forecast.arrivals, items)
    plan = RolloutPlan(
        format_version=FORMAT_VERSION,
        plan_id="",
        created_at=whole_second(inputs.created_at),
        cluster=inputs.snapshot.identity,
        selection=inputs.selection,
        policy=inputs.policy,
        waves=planned,
        excluded=tuple(sorted(exclusions, key=lambda entry: natural_key(entry.node))),
        blockers=(
            *(rivals(inputs.snapshot, inputs.policy.gates.ignored_rivals) if drainable else ()),
            *left.blockers(away, inputs.policy, {demand.pool for demand in demands}),
            *(blocker for item in drainable for blocker in item.blockers),
        ),
        warnings=tuple(_warnings(inputs, items, owners, planned, forecast.warnings)),
        summary=_summary(planned, layout.lower_bound),
        estimate=TimeEstimate(sum(wave.estimate.seconds for wave in waves), pace.basis if planned else ()),
    )
    return Decisions(sealed(plan), items, waves, limits)


def _layout(demands: Sequence[NodeDemand], quotas: Mapping[str, Quota], simulator: Simulator) -> Layout:
    """Return the layout that the rates of the budgets make the fastest."""

    def up_to(rounds: int) -> Layout:
        return lay_out_pools(demands, simulator.limits.up_to(rounds), simulator.pools, quotas)

    *fewer, most = _ROUNDS if len(demands) <= _MANY else _ROUNDS_OF_MANY
    widest = up_to(most)
    layouts = list[Layout]()
    for rounds in fewer:
        layouts.append(replace(up_to(rounds), lower_bound=widest.lower_bound))
        if len(layouts[-1].waves) <= widest.lower_bound:
            break
    else:
        layouts.append(widest)
    return min(layouts, key=simulator.estimated_seconds)


def _is_rolling(wave: Batch, pools: Pools) -> bool:
    """Whether the pool whose nodes it has rolls; where it has those of several, all of them do."""
    return pools.rules(wave.demands[0].pool).strategy is Strategy.ROLLING


def _roll_layout(layout: Layout, simulator: Simulator, scheduler: Scheduler) -> Layout:
    """Return the waves of pools that roll as parts whose nodes follow one another; those of the others as they are."""
    if not any(_is_rolling(wave, simulator.pools) for wave in layout.waves):
        return layout
    parts = list[Batch]()
    for is_rolling, alike in groupby(layout.waves, key=partial(_is_rolling, pools=simulator.pools)):
        group = list(alike)
        parts += roll_parts(group, simulator.limits) if is_rolling else group
    batch = [without_crowding(part, simulator.leaving, scheduler) for part in parts]
    waves = tuple(slow_first(part, simulator.seconds(part)) for part in batch)
    return replace(layout, waves=waves, lower_bound=len(waves))


def _warnings(
    inputs: PlanInputs,
    items: Mapping[str, Drainable],
    owners: Owners,
    waves: Sequence[Wave],
    foreseen: Iterable[PlanWarning],
) -> Iterator[PlanWarning]:
    for name, item in items.items():
        yield from (*item.warnings, *owners.all_at_once(name))
    blocked = {(node, name) for node, item in items.items() for name in item.blocked()}
    yield from (warning for warning in foreseen if (warning.node, warning.object) not in blocked)
    planned = [node for wave in waves for node in wave.nodes]
    yield from memory_warnings(planned, inputs.rules)
    for node in planned:
        if users := items[node.name].facts.users:
            names = shortened([str(user) for user in users], _NAMED_USERS)
            message = (
                f"{counted(len(users), 'user')} logged in ({names}); leave the node out: rollout pause {node.name}"
            )
            yield PlanWarning(node.name, f"node/{node.name}", message, WarningKind.LOGGED_IN)
    yield from _idle_rules(inputs)


def _summary(waves: Sequence[Wave], lower_bound: int) -> PlanSummary:
    nodes = [node for wave in waves for node in wave.nodes]
    pods = sum(node.evict for node in nodes)
    return PlanSummary(len(nodes), len(waves), lower_bound, pods, pods + sum(node.arrivals for node in nodes))


def _idle_rules(inputs: PlanInputs) -> Iterator[PlanWarning]:
    """Yield the rules of the operator that keep nothing: most likely they are mistyped."""
    message = "covers no pod: see its namespace and labels"
    for rule in inputs.policy.drain.critical:
        if not (budget := critical_budget(rule, inputs.snapshot.pods)).expected_pods:
            yield PlanWarning("", budget.key, message, WarningKind.NOTHING_CRITICAL)


def _planned(waves: Sequence[Batch], arrivals: Mapping[str, int], items: Mapping[str, Drainable]) -> tuple[Wave, ...]:
    return tuple(
        Wave(
            index,
            tuple(items[demand.name].planned(arrivals[demand.name]) for demand in wave.demands),
            wave.because,
            wave.note,
            wave.estimate,
            wave.rolling,
        )
        for index, wave in enumerate(waves, start=1)
    )


def _selected_nodes(inputs: PlanInputs) -> list[Node]:
    names = set(inputs.selected)
    return sorted(
        (node for node in inputs.snapshot.nodes if node.name in names),
        key=lambda node: natural_key(node.name),
    )


def _candidates(inputs: PlanInputs) -> Iterator[Candidate]:
    pools, rules, upgraded = inputs.pools, inputs.rules, nodes_being_upgraded(inputs.snapshot.pods)
    for node in _selected_nodes(inputs):
        name, pool = node.name, pools.of(node.labels)
        observation, by = inputs.observations.get(name), upgraded.get(name, "")
        yield Candidate(node, observation, pools.rules(pool), rules, pool, by)


def _forecasts(candidates: Iterable[Candidate], forecaster: DrainForecaster, inputs: PlanInputs) -> list[Drainable]:
    snapshot = inputs.snapshot
    forecasts = (
        forecaster.forecast(candidate, candidate.facts) for candidate in candidates if candidate.facts is not None
    )
    control_plane = ControlPlane.of(snapshot.nodes, snapshot.pods, inputs.policy)
    away = {node.name for node in snapshot.nodes if is_away(node)} - inputs.begun

    def endangered(name: str) -> Iterator[Blocker]:
        yield from control_plane.blockers(name)
        yield from storage_blockers(name, snapshot.stored, away, inputs.begun)

    return [replace(item, blockers=(*item.blockers, *endangered(item.node.name))) for item in forecasts]


def _skipped(item: Drainable) -> Exclusion:
    first = item.blockers[0]
    message = f"left out by --skip blocked: {first.object} {first.message}"
    return Exclusion(item.node.name, ExclusionReason.BLOCKED, message, item.pool)


def _chosen(inputs: PlanInputs) -> list[Node]:
    """Return the nodes that percentages are of."""
    return [node for node in _selected_nodes(inputs) if not excluded_by_name(node.name, inputs.selection)]


def _limits(
    size: int,
    owners: Owners,
    forecaster: DrainForecaster,
    inputs: PlanInputs,
    drainable: Sequence[Drainable],
    pace: Pace,
) -> Limits:
    asked = grouped(
        (key, verdict.pod)
        for item in drainable
        for verdict in item.verdicts
        for key in item.guarded.get(verdict.pod.uid, ())
    )
    rates = {
        key: pace.rate(
            forecaster.headcount.permits(forecaster.budgets[key]),
            inputs.policy.drain.grace_of(max(pod.grace_period for pod in pods)),
            {pod.owner.uid: pod.owner.kind for pod in pods if pod.owner},
        )
        for key, pods in asked.items()
    }
    # Half of a deadline is what company may cost; of several pools' the shortest, as any node may have to wait.
    deadline = min((timeout(inputs.pools.rules(item.pool)) for item in drainable), default=LONGEST)
    allowed = {key: budget.disruptions_allowed for key, budget in forecaster.budgets.items()}
    allowed |= {key: rate.permits for key, rate in rates.items()}
    allowed |= {**owners.allowed, **copies_spare(inputs.snapshot.stored)}
    return Limits(size, allowed, rates, {key: rate.rounds_within(deadline / 2) for key, rate in rates.items()})


def _node_demand(item: Drainable, owners: Owners, inputs: PlanInputs, pace: Pace, limits: Limits) -> NodeDemand:
    name, policy = item.node.name, inputs.pools.rules(item.pool)
    own, place = owners.loads.get(name, {}), pool_key(item.pool)
    copies = copies_taken(name, inputs.snapshot.stored)
    return NodeDemand(
        name,
        item.node.labels.get(policy.spread_by, "") if policy.spread_by else "",
        is_control_plane(item.node, policy),
        sum_of((item.load, own, copies, {place: 1} if place in limits.allowed else {})),
        sum_of((item.holds, own, copies)),
        slowest_ending((item.leaving,), policy.drain, pace),
        _price(item, policy),
        item.pool,
    )


def _price(item: Drainable, policy: Policy) -> tuple[int, int]:
    """Return what a node's pods cost before any other is done; nothing where pods are not kept from moving twice."""
    if not policy.prefer_no_schedule_taint:
        return 0, 0
    return len(item.leaving), sum(pod.requests.cpu_milli for pod in item.leaving)
