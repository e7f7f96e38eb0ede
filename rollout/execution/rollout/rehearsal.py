"""A dry run: the API server is asked about every write of the plan, and changes nothing.

Its answers are about now, one by one: evictions that are each allowed may not all be allowed together, which is what
the plan's waves are for. Reboots cannot be rehearsed.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rollout.errors import ApiError, DrainError
from rollout.execution.drain.drain import must_go
from rollout.execution.drain.eviction import Answer, request_removal
from rollout.gather.cluster.snapshot import node_path, read_daemon_sets, read_node_pods
from rollout.model.cluster import DaemonSet
from rollout.model.plan import PlannedNode, RolloutPlan
from rollout.model.policy import Policy
from rollout.planning.verdicts import DrainRules
from rollout.ports import ClusterApi

_AT_ONCE = 8
_DRY = {"dryRun": "All"}


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What the server would do with one node: evictions it would allow now, and what it objects to."""

    node: str
    evictions: int
    objections: tuple[str, ...]


def rehearse(api: ClusterApi, plan: RolloutPlan) -> tuple[Rehearsal, ...]:
    """Ask about every planned node, in the plan's order."""
    owners = read_daemon_sets(api)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="rehearse") as pool:
        return tuple(pool.map(lambda node: _rehearse_node(api, node, plan.policy, owners), plan.nodes))


def _rehearse_node(api: ClusterApi, node: PlannedNode, policy: Policy, owners: Sequence[DaemonSet]) -> Rehearsal:
    try:
        api.patch(node_path(node.name), {"spec": {"unschedulable": True}}, _DRY)
        pods = must_go(read_node_pods(api, node.name).pods, DrainRules.of(policy.drain, owners))
    except (ApiError, DrainError) as error:
        return Rehearsal(node.name, 0, (error.message,))
    attempts = [request_removal(api, pod, policy.drain, dry_run=True) for pod in pods if not pod.terminating]
    refused = [attempt for attempt in attempts if attempt.answer not in (Answer.ACCEPTED, Answer.GONE)]
    objections = tuple(f"{attempt.pod.key}: {attempt.message}" for attempt in refused)
    return Rehearsal(node.name, len(attempts) - len(refused), objections)
