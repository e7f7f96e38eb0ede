"""Rehearses the cordons, evictions and restarts of a plan as a dry run.

Evictions that are allowed one by one may not be allowed together.
"""

from collections.abc import Sequence

from rollout.errors import ApiConflictError, ApiError, DrainError
from rollout.execution.drain.drain import pods_to_remove
from rollout.execution.drain.eviction import EvictionResult, request_removal
from rollout.execution.rollout.ledger import Rehearsal
from rollout.gather.cluster.deployments import read_deployment, read_origin, restart_deployment
from rollout.gather.cluster.documents import DRY
from rollout.gather.cluster.snapshot import node_path, read_daemon_sets, read_node_pods
from rollout.model.cluster import DaemonSet, Pod, budget_subject
from rollout.model.plan import PlannedNode, RolloutPlan, WarningKind
from rollout.planning.drain.verdicts import DrainRules
from rollout.ports import ClusterApi
from rollout.threads import side_by_side

_AT_ONCE = 8
_ALLOWED = frozenset({EvictionResult.ACCEPTED, EvictionResult.GONE})


def rehearse_on_api_server(api: ClusterApi, plan: RolloutPlan) -> tuple[Rehearsal, ...]:
    daemon_sets = read_daemon_sets(api)
    rehearsed = side_by_side(
        plan.nodes,
        lambda node: _rehearse_node(api, node, plan, daemon_sets),
        most=_AT_ONCE,
        name="rehearse",
    )
    by_name = {node.name: rehearsal for node, rehearsal in rehearsed}
    return tuple(by_name[node.name] for node in plan.nodes)


def _rehearse_node(
    api: ClusterApi, node: PlannedNode, plan: RolloutPlan, daemon_sets: Sequence[DaemonSet]
) -> Rehearsal:
    policy = plan.policy
    try:
        api.patch(node_path(node.name), {"spec": {"unschedulable": True}}, DRY)
        rules = DrainRules.of(policy.drain, daemon_sets)
        leaving = pods_to_remove(read_node_pods(api, node.name), rules)
    except (ApiError, DrainError) as error:
        return Rehearsal(node.name, 0, (error.message,))
    # The drain only waits for the others.
    pods = [pod for pod in leaving if not (pod.terminating or rules.waits_for(pod))]
    attempts = [request_removal(api, pod, policy.drain, dry_run=True) for pod in pods]
    refused = [attempt for attempt in attempts if attempt.result not in _ALLOWED]
    objections = list[str]()
    for attempt in refused:
        if _is_warned_of(WarningKind.BUDGET_MANAGED, node, attempt.budget, plan):
            # The controller opens the budget when it moves the pod.
            continue
        objection = attempt.message
        if _is_warned_of(WarningKind.BUDGET_RESTART, node, attempt.budget, plan):
            # The drain restarts the pod's Deployment instead.
            objection = _objection_to_restart(api, attempt.pod, plan.created_at)
        if objection:
            objections.append(f"{attempt.pod.key}: {objection}")
    return Rehearsal(node.name, len(attempts) - len(refused), tuple(objections))


def _is_warned_of(kind: WarningKind, node: PlannedNode, budget: str, plan: RolloutPlan) -> bool:
    subject = budget_subject(budget)
    return any(
        warning.kind is kind and warning.node == node.name and warning.object == subject
        for warning in plan.warnings
    )


def _objection_to_restart(api: ClusterApi, pod: Pod, restarted_at: str) -> str:
    try:
        origin = read_origin(api, pod)
        deployment = read_deployment(api, pod.namespace, origin.deployment)
        restart_deployment(api, deployment, restarted_at, dry_run=True)
    except ApiConflictError:
        # The Deployment has just changed: a drain would try again.
        return ""
    except ApiError as error:
        return f"its Deployment cannot be restarted (drain.restart): {error.message}"
    return ""
