"""What is left of an interrupted rollout, as something that can be run: a plan, and what it inherits.

Without its record, or with one that is not understood, nothing is left but what the operator asks
for by name: the nodes that were begun, finished by their own marks.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rollout.execution.record.unfinished import Begun, Unfinished, stranded
from rollout.execution.rollout.ledger import Inheritance
from rollout.model.cluster import ClusterSnapshot
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy, Pool, Selection
from rollout.model.progress import NodeResult, NotDone, Outcome, excluded_by_trouble
from rollout.model.quantity import Count
from rollout.planning.eligibility.candidates import is_control_plane, requested_nodes
from rollout.planning.eligibility.pools import DEFAULT, pools_of
from rollout.planning.plan.build import PlanInputs, build_plan
from rollout.planning.plan.continuation import (
    count_finished_waves,
    is_regrouped,
    join_plans,
    remaining_ramp,
    stricter,
    with_earlier_exclusions,
    with_nodes_back,
)


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


def restrict_rules(unfinished: Unfinished, today: Policy, meant: Container[str]) -> Unfinished:
    """Apply its own rules and those of `today`, whichever are stricter; `meant` are the nodes meant today.

    Begun nodes are finished in any case. The others are left for a new plan where nodes are in
    other pools today, and once as many have failed as may. Where none is under way the gates are
    today's: one that nothing opens any more, as its Prometheus is gone, would hold the rest for
    ever.
    """
    known = unfinished.record.plan
    if known is None:
        return unfinished
    rules = stricter(known.policy, today, len(requested_nodes(known)))
    if not unfinished.blocks:
        rules = replace(rules, gates=today.gates)
    under_rules = replace(
        unfinished, record=replace(unfinished.record, plan=replace(known, policy=rules))
    )
    if is_regrouped(known.policy, today) or has_failed_enough(under_rules):
        return replace(under_rules, untouched=())
    return replace(
        under_rules, untouched=tuple(node for node in unfinished.untouched if node.name in meant)
    )


def has_failed_enough(unfinished: Unfinished) -> bool:
    """Whether as many nodes of it have failed as its rules allow."""
    plan = unfinished.record.plan
    limit = plan.policy.failures_allowed(len(requested_nodes(plan))) if plan else 1
    return bool(_failures(unfinished)) and _failures(unfinished) >= limit


def pending_nodes(unfinished: Unfinished, *, retry_failed: bool) -> frozenset[str]:
    """Return the nodes that are planned anew."""
    again = unfinished.given_back if retry_failed else ()
    return frozenset({*(node.name for node in unfinished.untouched), *again})


def _without_stranded(
    begun: Iterable[Begun], left_behind: Iterable[NodeResult]
) -> tuple[Begun, ...]:
    stranded_nodes = {result.node for result in left_behind}
    return tuple(item for item in begun if item.node.name not in stranded_nodes)


def _relax(rules: Policy, *, skip_blocked: bool, include_held: bool) -> Policy:
    """Return the rules with what the operator allows now, beside what was allowed at the start."""
    return replace(
        rules,
        skip_blocked=rules.skip_blocked or skip_blocked,
        include_held=rules.include_held or include_held,
    )


def continuation(
    unfinished: Unfinished,
    inputs: PlanInputs,
    hosts: Container[str],
    *,
    retry_failed: bool,
    skip_blocked: bool,
    include_held: bool = False,
) -> Continuation:
    """Return the nodes that were begun, taken on from where they stand, and the others by the rollout's own rules.

    `inputs` are the cluster as it is now; `hosts` the Nodes for which a host is known.
    """
    taken_up = (*unfinished.begun, *(unfinished.failed if retry_failed else ()))
    left_behind = stranded(unfinished, taken_up, hosts)
    begun = _without_stranded(taken_up, left_behind)
    rules = rules_of(unfinished)
    before = unfinished.record.plan
    selected = len(inputs.snapshot.nodes) if before is None else len(requested_nodes(before))
    policy = _relax(rules, skip_blocked=skip_blocked, include_held=include_held)
    given_back = frozenset(unfinished.given_back if retry_failed else ())
    pending = pending_nodes(unfinished, retry_failed=retry_failed)
    anew = replace(
        inputs,
        snapshot=with_nodes_back(inputs.snapshot, {item.node.name for item in begun}),
        selected=tuple(sorted(pending)),
        selection=Selection(),
        policy=_with_counts(policy, unfinished, inputs.snapshot, selected),
        retried=given_back,
        # those that are stranded keep their places, too, and are told of as what they are
        begun=frozenset(
            {*(item.node.name for item in (*unfinished.begun, *begun)), *unfinished.unclear}
        ),
    )
    ended = _count_ended_waves(unfinished, begun, pending)
    plan = join_plans(
        unfinished.run, tuple(item.node for item in begun), build_plan(anew), ended=ended
    )
    troubled = {node.node for node in excluded_by_trouble(plan.excluded)}
    planned = {node.name for node in plan.nodes}
    back_again = tuple(item.node.name for item in begun if item in unfinished.failed)
    limit = rules.failures_allowed(selected)
    inherited = Inheritance(
        begun={item.node.name: item.run for item in begun},
        left_cordoned=frozenset(
            item.node.name for item in unfinished.failed if item not in begun and item.cordoned
        ),
        health=unfinished.record.health,
        failures=count_failures(unfinished, limit, retry_failed=retry_failed),
        failed=tuple(
            node
            for node in _earlier_failures(unfinished)
            if not retry_failed or node.node in troubled
        ),
        stranded=left_behind,
        retried=given_back | set(back_again),
        left_over=tuple(node.name for node in unfinished.untouched if node.name not in planned),
    )
    present = {node.name for node in inputs.snapshot.nodes}
    return Continuation(
        with_earlier_exclusions(plan, before, present), inherited, selected, back_again
    )


def _count_ended_waves(
    unfinished: Unfinished, begun: Sequence[Begun], pending: Iterable[str]
) -> int:
    """Return how many waves have ended, so that no later wave gets the number of an earlier one.

    A process that resumed the rollout may have grouped the nodes anew, so the waves of the record's
    plan are not enough.
    """
    last = unfinished.record.last_wave
    if any(item in unfinished.begun for item in begun):
        # This wave goes on, with its number.
        last -= 1
    left = {*pending, *(item.node.name for item in begun)}
    return max(last, count_finished_waves(unfinished.record.plan, left))


def _earlier_failures(unfinished: Unfinished) -> tuple[NotDone, ...]:
    """Return the nodes that failed before the interruption: an Event on the Node tells how, while the server keeps it.

    The outcome on a Node may be of another version, or of anybody's hand.
    """
    cordoned = [item.node.name for item in unfinished.failed if item.run == unfinished.record.run]
    ends = dict.fromkeys(cordoned, (Outcome.FAILED, "left cordoned"))
    for name, word in unfinished.given_back.items():
        ends[name] = Outcome(word) if word in set(Outcome) else Outcome.FAILED, "returned"
    return tuple(
        NotDone(name, outcome, f"failed before and was {how}; see: kubectl describe node {name}")
        for name, (outcome, how) in ends.items()
    )


def count_failures(unfinished: Unfinished, limit: int, *, retry_failed: bool) -> int:
    """How many failures so far still count towards the limit.

    Those that are tried again do not, nor does any once they have reached it: the rollout has
    stopped for them, and whoever goes on all the same has decided to.
    """
    failures = 0 if retry_failed else _failures(unfinished)
    return failures if failures < limit else 0


def _failures(unfinished: Unfinished) -> int:
    stayed = sum(1 for item in unfinished.failed if item.run == unfinished.record.run)
    returned = sum(1 for outcome in unfinished.given_back.values() if outcome != Outcome.SKIPPED)
    return stayed + returned


def _with_counts(
    policy: Policy, unfinished: Unfinished, snapshot: ClusterSnapshot, selected: int
) -> Policy:
    """Return the run's own rules for the nodes that were never begun; their counts are of all the run's nodes.

    Nodes that came through, or are about to, have taken the first canaries; the workers that are
    still there of them the first steps of the ramp.
    """
    plan = unfinished.record.plan
    pools = pools_of(policy)
    default = ""
    sizes: Mapping[str, int] = {"": selected}
    if policy.pools and plan is not None:
        planned = requested_nodes(plan)
        default = DEFAULT
        sizes = pools.sizes(node for node in snapshot.nodes if node.name in planned)
    labels = {node.name: node.labels for node in snapshot.nodes}
    names = (*unfinished.done, *(item.node.name for item in unfinished.begun))
    through = {name: pools.of(labels.get(name, {})) for name in names}
    through |= {item.node.name: item.node.pool for item in unfinished.begun if item.node.pool}
    workers = [node.name for node in snapshot.nodes if not is_control_plane(node, policy)]
    taken = Counter(through.values())
    ramped = Counter(through[name] for name in workers if name in through)

    def remaining_steps(rules: Policy, pool: str) -> dict[str, Any]:
        """Return the canaries, and the steps of the ramp, that are still to be taken."""
        steps = [step.of(sizes.get(pool, 0)) for step in rules.ramp]
        ramp = remaining_ramp(steps, ramped[pool] - rules.canary)
        return {"canary": max(0, rules.canary - taken[pool]), "ramp": ramp}

    def left_in(pool: Pool) -> Pool:
        own = pool.max_unavailable
        most = None if own is None else Count(own.of(sizes.get(pool.name, 0)))
        return replace(
            pool, max_unavailable=most, **remaining_steps(pools.rules(pool.name), pool.name)
        )

    return replace(
        policy,
        max_unavailable=Count(policy.max_unavailable.of(selected)),
        max_failures=Count(policy.max_failures.of(selected)),
        pools=tuple(map(left_in, policy.pools)),
        **remaining_steps(policy, default),
    )
