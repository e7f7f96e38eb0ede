"""A whole rollout: take the Lease, begin the record, run the waves, tell the end; or the rehearsal of one.

In a dry run the API server is asked about every write of the plan, and changes nothing. Its answers are about now, one
by one: evictions that are each allowed may not all be allowed together, which is what the plan's waves are for. Reboots
cannot be rehearsed.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from rollout.errors import ApiError, DrainError
from rollout.execution.base.deadline import PatientApi, StopRequest
from rollout.execution.base.reporting import OutageNotice
from rollout.execution.drain.drain import must_go
from rollout.execution.drain.eviction import Answer, request_removal
from rollout.execution.events import NodeEvents
from rollout.execution.record.record import has_begun
from rollout.execution.rollout.ledger import Inheritance, Rehearsal
from rollout.execution.rollout.ports import Ports, RunOptions, lease_lock
from rollout.execution.rollout.run import Run
from rollout.gather.background import side_by_side
from rollout.gather.cluster.documents import DRY
from rollout.gather.cluster.snapshot import node_path, read_daemon_sets, read_node_pods, read_nodes
from rollout.model.cluster import DaemonSet
from rollout.model.host import Host
from rollout.model.plan import ExclusionReason, PlannedNode, RolloutPlan
from rollout.model.policy import Policy
from rollout.model.progress import RunResult, excluded_by_trouble
from rollout.planning.drain.verdicts import DrainRules
from rollout.ports import ClusterApi

_AT_ONCE = 8


def run_plan(
    plan: RolloutPlan,
    hosts: Mapping[str, Host],
    ports: Ports,
    options: RunOptions,
    stop: StopRequest,
    inherited: Inheritance | None = None,
) -> RunResult:
    """Run a plan, or what is left of it. `hosts` are by Node name.

    Raises `BlockedError` where another rollout holds the Lease, or has left its record unfinished, or where the record
    of what is gone on with is another by now; and `InterruptedRunError` where `stop` is wished for before anything has
    begun.
    """
    events = NodeEvents(ports.api, plan.plan_id, plan.nodes, ports.observer, ports.clock)
    cluster = PatientApi(ports.api, ports.clock, OutageNotice(events.report), options.api_patience)
    with lease_lock(cluster, options, plan.plan_id, events.report, stop) as lock, events:
        run = Run(plan, hosts, ports, options, stop, inherited or Inheritance(), lock.check, events.report, cluster)
        run.begin(is_new=inherited is None)
        with _soft_taints(run) as kept:
            run.run_waves()
            kept.update(_deferred(run))
        is_over = False
        if not run.ledger.fenced and run.may_act():
            is_over = _is_over(run, is_new=inherited is None)
            run.record.end(complete=is_over)
        result = _result(run, resumable=not is_over)
    run.report.finished(result)
    return result


def _soft_taints(run: Run) -> AbstractContextManager[set[str]]:
    """Keep the soft taint on the nodes that wait, where the rules ask for it; at the end on none of this run."""
    left = {left.node: left.reason for left in run.plan.excluded}
    planned = frozenset(node.name for node in run.plan.nodes)
    if not run.plan.policy.prefer_no_schedule_taint:
        return run.tainting.while_waiting((), planned | left.keys())
    deferred = {name for name, reason in left.items() if reason is ExclusionReason.DEFERRED}
    return run.tainting.while_waiting((planned - run.inherited.begun.keys()) | deferred, left)


def _deferred(run: Run) -> set[str]:
    """Mark the node under this process for a run from elsewhere, now that all others have had their turn."""
    own = run.options.own_node
    reasons = {node.node: node.reason for node in run.ledger.skipped}
    reasons |= {left.node: left.reason for left in run.plan.excluded}
    if own is None or reasons.get(own.name) is not ExclusionReason.DEFERRED:
        return set()
    run.tainting.defer(own.name, own.marker or run.options.holder, taint=run.plan.policy.prefer_no_schedule_taint)
    return {own.name}


def _is_over(run: Run, *, is_new: bool) -> bool:
    """Tell whether nothing is left to go on with: neither here, nor once a trouble has passed.

    A new rollout that has begun no node leaves nothing, and is begun anew.
    """
    left = {node.node for node in excluded_by_trouble(run.plan.excluded)} & set(run.inherited.left_over)
    if run.ledger.complete and not (run.inherited.failed or left):
        return True
    if not is_new or run.ledger.finished:
        return False
    try:
        return not has_begun(run.plan.plan_id, run.cluster.ask(read_nodes))
    except ApiError:
        return False


def _result(run: Run, *, resumable: bool) -> RunResult:
    ledger, inherited = run.ledger, run.inherited
    waiting = {node.node for node in ledger.not_started}
    return RunResult(
        tuple(ledger.finished),
        tuple(ledger.skipped),
        tuple(ledger.not_started),
        run.plan.excluded,
        inherited.failed,
        run.plan.summary.pods_to_move,
        len(run.moved),
        inherited.left_over,
        run.memory.held_among(node for node in run.plan.nodes if node.name in waiting),
        run.memory.newly_held,
        resumable=resumable,
    )


def rehearse(api: ClusterApi, plan: RolloutPlan) -> tuple[Rehearsal, ...]:
    """Ask about every planned node, in the plan's order."""
    owners = read_daemon_sets(api)
    rehearsed = side_by_side(
        plan.nodes, lambda node: _rehearse_node(api, node, plan.policy, owners), most=_AT_ONCE, name="rehearse"
    )
    by_name = {node.name: rehearsal for node, rehearsal in rehearsed}
    return tuple(by_name[node.name] for node in plan.nodes)


def _rehearse_node(api: ClusterApi, node: PlannedNode, policy: Policy, owners: Sequence[DaemonSet]) -> Rehearsal:
    try:
        api.patch(node_path(node.name), {"spec": {"unschedulable": True}}, DRY)
        pods = must_go(read_node_pods(api, node.name), DrainRules.of(policy.drain, owners))
    except (ApiError, DrainError) as error:
        return Rehearsal(node.name, 0, (error.message,))
    attempts = [request_removal(api, pod, policy.drain, dry_run=True) for pod in pods if not pod.terminating]
    refused = [attempt for attempt in attempts if attempt.answer not in (Answer.ACCEPTED, Answer.GONE)]
    objections = tuple(f"{attempt.pod.key}: {attempt.message}" for attempt in refused)
    return Rehearsal(node.name, len(attempts) - len(refused), objections)
