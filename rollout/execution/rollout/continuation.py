"""What is left of an interrupted rollout, as something that can be run: a plan, and what it inherits.

Without its record, or with one that is not understood, nothing is left but what the operator asks for by name: the
nodes that were begun, finished by their own marks.
"""

from collections import defaultdict
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from rollout.execution.record.unfinished import Begun, Unfinished, stranded
from rollout.execution.rollout.ledger import Inheritance
from rollout.model.cluster import ClusterSnapshot
from rollout.model.host import Host, HostObservation
from rollout.model.own_node import OwnNode
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy, Pool, Selection
from rollout.model.progress import NotDone, Outcome, excluded_by_trouble
from rollout.model.quantity import Count
from rollout.planning.eligibility.candidates import excluded_by_name, is_control_plane
from rollout.planning.eligibility.evidence import Proven
from rollout.planning.eligibility.pools import DEFAULT, Pools, pools_of
from rollout.planning.plan.build import PlanInputs, build_plan
from rollout.planning.plan.continuation import (
    is_regrouped,
    joined,
    once_back,
    remaining_ramp,
    stricter,
    timed_as,
    with_earlier_exclusions,
)
from rollout.planning.play.pace import Past


@dataclass(frozen=True, slots=True)
class Situation:
    """The cluster as it is when an interrupted rollout is gone on with.

    `hosts` are those of all Nodes, as far as they are known; `observations` what those said that were asked, by Node;
    `own_node` is the node under this process. `unattended`: an operating process goes on, and nobody has decided to.
    `proven` as for a plan.
    """

    snapshot: ClusterSnapshot
    hosts: Mapping[str, Host]
    observations: Mapping[str, HostObservation]
    now: datetime
    past: Past
    own_node: OwnNode | None = None
    unattended: bool = False
    proven: Proven | None = None


@dataclass(frozen=True, slots=True)
class Continuation:
    """What is run to go on. `selected` is how many nodes percentages are of; `retried` failed, and are taken again."""

    plan: RolloutPlan
    inherited: Inheritance
    selected: int
    retried: tuple[str, ...]


def is_nothing_left(unfinished: Unfinished, *, retry_failed: bool) -> bool:
    """Whether there is nothing to go on with; a record that only needs tidying away is something."""
    failed = retry_failed and (unfinished.failed or unfinished.given_back)
    if unfinished.begun or unfinished.unclear or failed:
        return False
    return unfinished.record.ended and not (unfinished.untouched or unfinished.is_garbled)


def rules_of(unfinished: Unfinished) -> Policy:
    """Those of the interrupted rollout; where they are not known, nothing is gone on with."""
    return unfinished.record.plan.policy if unfinished.record.plan else Policy()


def restricted(unfinished: Unfinished, today: Policy, meant: Container[str]) -> Unfinished:
    """Apply its own rules and those of `today`, whichever are stricter; `meant` are the nodes meant today.

    Begun nodes are finished in any case. The others are left for a new plan where nodes are in other pools today, and
    once as many have failed as may. Where none is under way the gates are today's:
    one that nothing opens any more, as its Prometheus is gone, would hold the rest for ever. The checks are today's in
    any case: to ask for one is to write on a Node, and to take the annotation away by which it answers. So are the
    time-outs.
    """
    known = unfinished.record.plan
    if known is None:
        return unfinished
    rules = timed_as(stricter(known.policy, today, len(_planned_names(known))), today)
    rules = replace(rules, gates=replace(rules.gates, hooks=today.gates.hooks) if unfinished.blocks else today.gates)
    under_rules = replace(unfinished, record=replace(unfinished.record, plan=replace(known, policy=rules)))
    if is_regrouped(known.policy, today) or has_failed_enough(under_rules):
        return replace(under_rules, untouched=())
    return replace(under_rules, untouched=tuple(node for node in unfinished.untouched if node.name in meant))


def has_failed_enough(unfinished: Unfinished) -> bool:
    """Whether as many nodes of it have failed as its rules allow."""
    plan = unfinished.record.plan
    limit = plan.policy.failures_allowed(len(_planned_names(plan))) if plan else 1
    return bool(_failures(unfinished)) and _failures(unfinished) >= limit


def pending_nodes(unfinished: Unfinished, *, retry_failed: bool) -> frozenset[str]:
    """Return the nodes that are planned anew."""
    again = unfinished.given_back if retry_failed else ()
    return frozenset({*(node.name for node in unfinished.untouched), *again})


def continuation(
    unfinished: Unfinished,
    situation: Situation,
    *,
    retry_failed: bool,
    skip_blocked: bool,
    include_held: bool = False,
) -> Continuation:
    """Return the nodes that were begun, taken on from where they stand, and the others by the rollout's own rules."""
    begun = (*unfinished.begun, *(unfinished.failed if retry_failed else ()))
    left_behind = stranded(unfinished, begun, situation.hosts)
    stranded_nodes = {result.node for result in left_behind}
    begun = tuple(item for item in begun if item.node.name not in stranded_nodes)
    rules, before = rules_of(unfinished), unfinished.record.plan
    selected = len(situation.snapshot.nodes) if before is None else len(_planned_names(before))
    policy = replace(
        _counted(unfinished, situation.snapshot, selected),
        skip_blocked=rules.skip_blocked or skip_blocked,
        include_held=rules.include_held or include_held,
    )
    fresh = _planned_anew(unfinished, situation, policy, begun, retry_failed=retry_failed)
    plan = joined(unfinished.run, tuple(item.node for item in begun), fresh)
    failed, planned = _failed_before(unfinished), {node.name for node in plan.nodes}
    if retry_failed:
        troubled = {node.node for node in excluded_by_trouble(plan.excluded)}
        failed = tuple(node for node in failed if node.node in troubled)
    back_again = tuple(item.node.name for item in begun if item in unfinished.failed)
    limit = rules.failures_allowed(selected)
    inherited = Inheritance(
        begun={item.node.name: item.run for item in begun},
        left_cordoned=frozenset(item.node.name for item in unfinished.failed if item not in begun and item.cordoned),
        health=unfinished.record.health,
        failures=counted_failures(unfinished, limit, retry_failed=retry_failed),
        failed=failed,
        stranded=left_behind,
        retried=frozenset({*(unfinished.given_back if retry_failed else ()), *back_again}),
        left_over=tuple(node.name for node in unfinished.untouched if node.name not in planned),
    )
    present = {node.name for node in situation.snapshot.nodes}
    return Continuation(with_earlier_exclusions(plan, before, present), inherited, selected, back_again)


def _planned_anew(
    unfinished: Unfinished, situation: Situation, policy: Policy, begun: tuple[Begun, ...], *, retry_failed: bool
) -> RolloutPlan:
    """Plan the nodes that were never begun, beside those that are taken on from where they stand."""
    return build_plan(
        PlanInputs(
            snapshot=once_back(situation.snapshot, {item.node.name for item in begun}),
            observations=situation.observations,
            selected=tuple(sorted(pending_nodes(unfinished, retry_failed=retry_failed))),
            selection=Selection(),
            policy=policy,
            created_at=situation.now,
            past=situation.past,
            own_node=situation.own_node,
            unattended=situation.unattended,
            retried=frozenset(unfinished.given_back) if retry_failed else frozenset(),
            # those that are stranded keep their places, too, and are told of as what they are
            begun=frozenset({*(item.node.name for item in (*unfinished.begun, *begun)), *unfinished.unclear}),
            proven=situation.proven,
        )
    )


def _failed_before(unfinished: Unfinished) -> tuple[NotDone, ...]:
    """Return the nodes that failed before the interruption: an Event on the Node tells how, while the server keeps it.

    The outcome on a Node may be of another version, or of anybody's hand.
    """
    cordoned = [item.node.name for item in unfinished.failed if item.run == unfinished.record.run]
    ends = dict.fromkeys(cordoned, (Outcome.FAILED, "left cordoned"))
    for name, word in unfinished.given_back.items():
        ends[name] = Outcome(word) if word in set(Outcome) else Outcome.FAILED, "given back"
    return tuple(
        NotDone(name, outcome, f"failed before and was {how}; see: kubectl describe node {name}")
        for name, (outcome, how) in ends.items()
    )


def counted_failures(unfinished: Unfinished, limit: int, *, retry_failed: bool) -> int:
    """How many failures so far still count towards the limit.

    Those that are tried again do not, nor does any once they have reached it: the rollout has stopped for them, and
    whoever goes on all the same has decided to.
    """
    failures = 0 if retry_failed else _failures(unfinished)
    return failures if failures < limit else 0


def _failures(unfinished: Unfinished) -> int:
    stayed = sum(1 for item in unfinished.failed if item.run == unfinished.record.run)
    returned = sum(1 for outcome in unfinished.given_back.values() if outcome != Outcome.SKIPPED)
    return stayed + returned


def _planned_names(plan: RolloutPlan) -> tuple[str, ...]:
    """Return the nodes that a plan was made for: its percentages are of them."""
    names = [node.name for node in plan.nodes] + [exclusion.node for exclusion in plan.excluded]
    return tuple(name for name in names if not excluded_by_name(name, plan.selection))


def _counted(unfinished: Unfinished, snapshot: ClusterSnapshot, selected: int) -> Policy:
    """Return the run's own rules for the nodes that were never begun; their counts are of all the run's nodes."""
    policy, plan = rules_of(unfinished), unfinished.record.plan
    pools, taken = pools_of(policy), _taken(unfinished, snapshot)
    default = ""
    sizes: Mapping[str, int] = {"": selected}
    if policy.pools:
        names = None if plan is None else _planned_names(plan)
        default, sizes = DEFAULT, pools.sizes(node for node in snapshot.nodes if names is None or node.name in names)
    return replace(
        _remaining(policy, taken[default], sizes.get(default, 0)),
        max_unavailable=Count(policy.max_unavailable.of(selected)),
        max_failures=Count(policy.max_failures.of(selected)),
        pools=tuple(_remaining_in(pool, pools, taken[pool.name], sizes.get(pool.name, 0)) for pool in policy.pools),
    )


@dataclass(frozen=True, slots=True)
class _Taken:
    """How many nodes have come through, or are about to: all that were, and the workers that are still there."""

    nodes: int = 0
    workers: int = 0


def _taken(unfinished: Unfinished, snapshot: ClusterSnapshot) -> Mapping[str, _Taken]:
    """Return the same, by pool."""
    rules = rules_of(unfinished)
    pools, labels = pools_of(rules), {node.name: node.labels for node in snapshot.nodes}
    workers = {node.name for node in snapshot.nodes if not is_control_plane(node, rules)}
    begun = {item.node.name: item.node.pool for item in unfinished.begun}
    through = [(name, begun.get(name) or pools.of(labels.get(name, {}))) for name in {*unfinished.done, *begun}]
    taken: dict[str, _Taken] = defaultdict(_Taken)
    for name, pool in through:
        before = taken[pool]
        taken[pool] = _Taken(before.nodes + 1, before.workers + (name in workers))
    return taken


def _remaining(rules: Policy, taken: _Taken, size: int) -> Policy:
    """Leave as many canaries and steps of the ramp as are still to be taken; the ramp's are of `size` nodes.

    Nodes that came through, or are about to, have taken the first ones.
    """
    ramp = remaining_ramp([step.of(size) for step in rules.ramp], taken.workers - rules.canary)
    return replace(rules, canary=max(0, rules.canary - taken.nodes), ramp=ramp)


def _remaining_in(pool: Pool, pools: Pools, taken: _Taken, size: int) -> Pool:
    """Return a pool's own rules, with its counts in numbers."""
    rest = _remaining(pools.rules(pool.name), taken, size)
    most = None if pool.max_unavailable is None else Count(pool.max_unavailable.of(size))
    return replace(pool, max_unavailable=most, canary=rest.canary, ramp=rest.ramp)
