"""Rehearses a rollout: every cordon and eviction of the plan as a server-side dry run.

Evictions that are allowed one by one may not be allowed together.
"""

from collections.abc import Sequence

from rollout.errors import ApiError, DrainError
from rollout.execution.drain.drain import pods_to_remove
from rollout.execution.drain.eviction import EvictionResult, request_removal
from rollout.execution.rollout.ledger import Rehearsal
from rollout.gather.cluster.documents import DRY
from rollout.gather.cluster.snapshot import node_path, read_daemon_sets, read_node_pods
from rollout.model.cluster import DaemonSet
from rollout.model.plan import PlannedNode, RolloutPlan
from rollout.model.policy import Policy
from rollout.planning.drain.verdicts import DrainRules
from rollout.ports import ClusterApi
from rollout.threads import side_by_side

_AT_ONCE = 8


def rehearse(api: ClusterApi, plan: RolloutPlan) -> tuple[Rehearsal, ...]:
    owners = read_daemon_sets(api)
    rehearsed = side_by_side(
        plan.nodes,
        lambda node: _rehearse_node(api, node, plan.policy, owners),
        most=_AT_ONCE,
        name="rehearse",
    )
    by_name = {node.name: rehearsal for node, rehearsal in rehearsed}
    return tuple(by_name[node.name] for node in plan.nodes)


def _rehearse_node(
    api: ClusterApi, node: PlannedNode, policy: Policy, owners: Sequence[DaemonSet]
) -> Rehearsal:
    try:
        api.patch(node_path(node.name), {"spec": {"unschedulable": True}}, DRY)
        rules = DrainRules.of(policy.drain, owners)
        leaving = pods_to_remove(read_node_pods(api, node.name), rules)
    except (ApiError, DrainError) as error:
        return Rehearsal(node.name, 0, (error.message,))
    pods = [pod for pod in leaving if not (pod.terminating or rules.waits_for(pod))]
    attempts = [request_removal(api, pod, policy.drain, dry_run=True) for pod in pods]
    refused = [
        attempt
        for attempt in attempts
        if attempt.result not in (EvictionResult.ACCEPTED, EvictionResult.GONE)
    ]
    objections = tuple(f"{attempt.pod.key}: {attempt.message}" for attempt in refused)
    return Rehearsal(node.name, len(attempts) - len(refused), objections)
