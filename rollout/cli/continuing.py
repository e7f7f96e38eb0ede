"""The deciding stage of resume: what is left of an interrupted rollout, as something that can be run.

Without its record, or with one that is not understood, nothing is left but what the operator asks for by name: the
nodes that were begun, finished by their own marks.
"""

from collections.abc import Container, Sequence
from dataclasses import replace

from rollout.cli import wiring
from rollout.cli.gathering import Connections, Targets, ask_named, read_cluster
from rollout.cli.options import LeaseOptions, SshOptions
from rollout.cli.permitting import refuse_without_rights
from rollout.cli.recording import past_runs
from rollout.cli.requiring import MEND_FOR_RESUME, refuse_incomplete
from rollout.cli.run_options import LeftoverOptions, LockOptions, StopMode
from rollout.cli.running import Run, refuse_blocked, run_options, tell_conceded
from rollout.cli.terminal import say, show, width
from rollout.errors import BlockedError, UsageError
from rollout.execution.record.stranded import stranded
from rollout.execution.record.unfinished import Begun, Unfinished
from rollout.execution.rollout.ports import Inheritance
from rollout.model.cluster import ClusterSnapshot
from rollout.model.plan import RolloutPlan, Wave
from rollout.model.policy import DrainPolicy, Policy, Selection
from rollout.model.progress import NotDone, Outcome, excluded_by_trouble
from rollout.model.quantity import Count
from rollout.planning.eligibility import excluded_by_name
from rollout.planning.plan import PlanInputs, build_plan
from rollout.report.tables import plan_text
from rollout.report.unfinished import heading, resume_text, unknown_rules

_BECAUSE = "begun before the interruption"
# What drains of the rollout were not allowed is not known, so no data is deleted.
_SAFE = Policy(drain=DrainPolicy(delete_emptydir_data=False))


def nothing_left(found: Unfinished, leftover: LeftoverOptions) -> bool:
    """Whether there is nothing to go on with; a record that only needs tidying away is something."""
    failed = leftover.retry_failed and (found.failed or found.given_back)
    if found.begun or found.unclear or failed:
        return False
    if leftover.finish_begun and found.record.problem:
        return True
    return found.record.ended and not (found.untouched or found.is_garbled)


def refuse_unknown_rules(found: Unfinished, leftover: LeftoverOptions) -> None:
    """`BlockedError` for a rollout whose rules are not known, unless its begun nodes are to be finished without them.

    `UsageError` where that is asked for, and they are known.
    """
    if found.record.problem and not leftover.finish_begun:
        raise BlockedError(
            f"{heading(found)}: without its record its rules are not known, so it is not resumed",
            hint="rollout abort gives back what was begun, and takes away a record that is not understood; "
            "rollout resume --finish-begun takes begun nodes to their end by their marks, and starts no other.",
        )
    if found.record.problem and not found.run:
        raise BlockedError(
            f"{heading(found)}: no node's marks are understood by which it could be finished",
            hint="rollout status --run names the nodes; rollout abort removes its record, and leaves them as they are.",
        )
    if leftover.finish_begun and not found.record.problem:
        raise UsageError(
            "--finish-begun is for a rollout whose record is gone or not understood; this one's is whole",
            hint="rollout resume goes on with it by its rules.",
        )


def left_of(
    found: Unfinished,
    connections: Connections,
    ssh: SshOptions,
    lease: LeaseOptions,
    lock: LockOptions,
    stop: StopMode,
    leftover: LeftoverOptions,
    *,
    quiet: bool,
) -> Run:
    """What is left to run, after showing it."""
    snapshot = read_cluster(connections)
    policy = _rules(found)
    refuse_without_rights(connections, policy.drain, lease.lease_namespace)
    begun = _taken_on(found, retry_failed=leftover.retry_failed)
    pending = {node.name for node in found.untouched} | (set(found.given_back) if leftover.retry_failed else set())
    targets = ask_named(snapshot.nodes, pending, connections, ssh)
    left_behind = stranded(found, begun, targets.hosts)
    begun = tuple(item for item in begun if item.node.name not in {result.node for result in left_behind})
    selected = _selected(found, snapshot)
    fresh = _planned_anew(found, pending, snapshot, targets, selected, skip_blocked=leftover.skip_blocked)
    plan = _with_left_out(_joined(found, begun, fresh), found, {node.name for node in snapshot.nodes})
    failures = counted_failures(found, policy.max_failures.of(selected), retry_failed=leftover.retry_failed)
    if not quiet:
        show(resume_text(found, [item.node.name for item in begun if item in found.failed], failures, left_behind))
        show("\n" + plan_text(plan, zones={node.name: node.zone for node in snapshot.nodes}, width=width()))
    else:
        for line in unknown_rules(found):
            say(f"warning: {line}")
    conceded = tell_conceded(policy, "the interrupted rollout has")
    failed = () if leftover.retry_failed else failed_before(found)
    if leftover.require_all:
        lost = (NotDone(result.node, result.outcome, result.message) for result in left_behind)
        refuse_incomplete((*failed, *lost, *excluded_by_trouble(plan.excluded)), MEND_FOR_RESUME)
    refuse_blocked(_without_accepted(plan, found), only_rivals=leftover.ignore_blockers)
    left = frozenset(item.node.name for item in found.failed if item not in begun and item.cordoned)
    inherited = Inheritance(
        begun={item.node.name: item.run for item in begun},
        left=left,
        health=found.record.health,
        failures=failures,
        failed=failed,
        stranded=left_behind,
        is_recorded=not found.record.problem,
    )
    options = run_options(selected, ssh, lease, lock)
    return Run(plan, targets, connections, options, stop, inherited, conceded=conceded)


def _without_accepted(plan: RolloutPlan, found: Unfinished) -> RolloutPlan:
    """The plan without the blockers beside which its operator began it: whoever goes on is not asked about them."""
    begun_beside = found.record.plan.blockers if found.record.plan else ()
    accepted = {(known.node, known.kind, known.object) for known in begun_beside}
    return replace(
        plan, blockers=tuple(one for one in plan.blockers if (one.node, one.kind, one.object) not in accepted)
    )


def _with_left_out(plan: RolloutPlan, found: Unfinished, present: Container[str]) -> RolloutPlan:
    """The plan with what the rollout did not take in the first place: its end accounts for that, whoever brings it."""
    named = {node.name for node in plan.nodes} | {one.node for one in plan.excluded}
    before = found.record.plan.excluded if found.record.plan else ()
    carried = tuple(
        replace(one, message=f"when the rollout was planned: {one.message}")
        for one in before
        if one.node in present and one.node not in named
    )
    return replace(plan, excluded=(*plan.excluded, *carried))


def failed_before(found: Unfinished) -> tuple[NotDone, ...]:
    """The rollout's nodes that failed before the interruption, cordoned or in service."""
    left = [item.node.name for item in found.failed if item.run == found.record.run]
    return (
        *(NotDone(name, Outcome.FAILED, "failed before, and was left cordoned") for name in left),
        *(
            NotDone(name, _outcome(word), "failed before, and was given back")
            for name, word in found.given_back.items()
        ),
    )


def _outcome(word: str) -> Outcome:
    """What stands on a Node may be of another version, or of anybody's hand."""
    return Outcome(word) if word in set(Outcome) else Outcome.FAILED


def counted_failures(found: Unfinished, limit: int, *, retry_failed: bool) -> int:
    """How many failures so far still count towards the limit.

    Those that are tried again do not, nor does any once they have reached it: the rollout has stopped for them, and
    whoever goes on all the same has decided to.
    """
    if retry_failed:
        return 0
    stayed = sum(1 for item in found.failed if item.run == found.record.run)
    returned = sum(1 for outcome in found.given_back.values() if outcome != Outcome.SKIPPED)
    return stayed + returned if stayed + returned < limit else 0


def _taken_on(found: Unfinished, *, retry_failed: bool) -> tuple[Begun, ...]:
    return (*found.begun, *(found.failed if retry_failed else ()))


def _rules(found: Unfinished) -> Policy:
    """Those of the interrupted rollout; where they are not known, such as nothing can be lost by."""
    return found.record.plan.policy if found.record.plan else _SAFE


def _selected(found: Unfinished, snapshot: ClusterSnapshot) -> int:
    """How many nodes the percentages of the interrupted run are of."""
    if found.record.plan is None:
        return len(snapshot.nodes)
    names = [node.name for node in found.record.plan.nodes] + [left.node for left in found.record.plan.excluded]
    return sum(1 for name in names if not excluded_by_name(name, found.record.plan.selection))


def _planned_anew(
    found: Unfinished,
    pending: set[str],
    snapshot: ClusterSnapshot,
    targets: Targets,
    selected: int,
    *,
    skip_blocked: bool,
) -> RolloutPlan:
    """A plan of the nodes that were never begun, by the rules of the run; its counts are of all the run's nodes."""
    policy = _rules(found)
    counted = replace(
        policy,
        max_unavailable=Count(policy.max_unavailable.of(selected)),
        max_failures=Count(policy.max_failures.of(selected)),
        canary=max(0, policy.canary - len(found.done) - len(found.begun)),
        ramp=_rest_of_ramp(found, policy, snapshot, selected),
        skip_blocked=policy.skip_blocked or skip_blocked,
    )
    return build_plan(
        PlanInputs(
            snapshot=snapshot,
            observations=targets.observations,
            selected=tuple(sorted(pending)),
            selection=Selection(),
            policy=counted,
            created_at=wiring.system_clock().now(),
            past=past_runs(snapshot.identity),
        )
    )


def _rest_of_ramp(found: Unfinished, policy: Policy, snapshot: ClusterSnapshot, selected: int) -> tuple[Count, ...]:
    """The steps that are still to be taken: nodes that came through, or are about to, have taken the first ones."""
    through = {*found.done, *(item.node.name for item in found.begun)}
    workers = sum(1 for node in snapshot.nodes if node.name in through and not node.is_control_plane)
    return after_steps([step.of(selected) for step in policy.ramp], workers - policy.canary)


def after_steps(sizes: Sequence[int], taken: int) -> tuple[Count, ...]:
    """A ramp of these sizes once that many nodes have taken it; the last size is for all further nodes."""
    rest, taken = list(sizes), max(0, taken)
    while len(rest) > 1 and taken >= rest[0]:
        taken -= rest.pop(0)
    if len(rest) > 1:
        rest[0] -= taken
    return tuple(map(Count, rest))


def _joined(found: Unfinished, begun: tuple[Begun, ...], fresh: RolloutPlan) -> RolloutPlan:
    """One plan under the run's own id: first the nodes under way, then the waves of the others.

    That nodes are away is no reason not to begin: those under way are among them, and waiting is what waves do.
    """
    nodes = tuple(item.node for item in begun)
    first = (Wave(1, nodes, _BECAUSE),) if nodes else ()
    waves = (*first, *(replace(wave, index=wave.index + len(first)) for wave in fresh.waves))
    summary = replace(fresh.summary, nodes=fresh.summary.nodes + len(nodes), waves=len(waves))
    summary = replace(summary, waves_lower_bound=min(len(waves), fresh.summary.waves_lower_bound + len(first)))
    blockers = tuple(found_ for found_ in fresh.blockers if not (nodes and found_.object.startswith("node/")))
    return replace(fresh, plan_id=found.run, waves=waves, summary=summary, blockers=blockers)
