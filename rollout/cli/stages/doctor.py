from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from rollout.cli import wiring
from rollout.cli.stages.cluster import (
    Connections,
    read_cluster,
    read_memory,
    read_nodes,
    with_retries,
)
from rollout.cli.stages.hosts import Targets, ask_hosts
from rollout.cli.stages.lock import read_lock, watch_for_holder
from rollout.cli.stages.prepare import inputs_of, make_plan
from rollout.cli.stages.rollout_spec import RolloutSpec
from rollout.cli.stages.status import UnfinishedSummary, read_unfinished_summary
from rollout.cli.stages.unfinished import find_unfinished
from rollout.errors import ApiError, RolloutError
from rollout.execution.record.memory import why_unwritable
from rollout.execution.record.record import record_document
from rollout.execution.record.unfinished import run_state
from rollout.gather.cluster.documents import memory_document
from rollout.gather.cluster.rights import apply_rights, has_right, missing_rights
from rollout.gather.doctor import cluster
from rollout.gather.doctor.checks import Check, CheckName, Verdict, error_check, passed
from rollout.gather.doctor.hosts import host_checks
from rollout.model import marks
from rollout.model.cluster import ClusterIdentity, ClusterSnapshot, Node
from rollout.model.finding import RivalMark
from rollout.model.node_kind import why_unsupported
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy
from rollout.planning.eligibility.pools import DEFAULT, order_pools, pools_of
from rollout.planning.eligibility.rivals import (
    marks_of_rivals,
    nodes_being_upgraded,
    rival_blockers,
)
from rollout.planning.eligibility.versions import update_standings
from rollout.ports import ClusterApi
from rollout.report.status import FollowUp
from rollout.report.unfinished import commands_clause, unfinished_heading
from rollout.wording import cause_of

_WHEN_NODES_CAN_TAKE_PART = "When the nodes above can be rebooted"
_SELF_REBOOTING = (CheckName.LOCKSMITHD, CheckName.ZINCATI, CheckName.RIVAL)


class Outlook(NamedTuple):
    """What a rollout could do next."""

    unfinished: UnfinishedSummary
    has_pending: bool


def find_next_step(checks: Sequence[Check], outlook: Outlook | None) -> FollowUp:
    """Return the first of: fix failures, continue, plan a new rollout."""
    failed = {check.check for check in checks if check.verdict is Verdict.FAIL}
    # If an unfinished rollout fails the lock's check, continuing it is the fix.
    failed_besides_lock = failed - {CheckName.LOCK}
    if outlook is None or failed_besides_lock:
        return FollowUp(command="rollout doctor", lead="After fixing what failed")
    follow_up = outlook.unfinished.follow_up
    can_continue = bool(follow_up.command)
    needs_fix = bool(follow_up.lead)
    # Otherwise a new plan includes the unfinished rollout's remaining nodes.
    must_continue = follow_up.is_first or needs_fix or not outlook.has_pending
    if can_continue and must_continue:
        return _step_that_continues(outlook)
    if outlook.has_pending:
        return FollowUp(command="rollout plan")
    has_excluded_nodes = any(
        check.check is CheckName.NODE and check.verdict is Verdict.WARN for check in checks
    )
    if has_excluded_nodes:
        no_node = "No node can be planned now."
        return FollowUp(no_node, "rollout plan", lead=_WHEN_NODES_CAN_TAKE_PART)
    return FollowUp("No node is waiting for a reboot.")


def _step_that_continues(outlook: Outlook) -> FollowUp:
    """Leave out the sentence, which the lock's check already has."""
    unfinished = outlook.unfinished
    lead = unfinished.follow_up.lead
    has_nothing_to_start = unfinished.only_starts_nodes and not outlook.has_pending
    if has_nothing_to_start and not lead:
        lead = _WHEN_NODES_CAN_TAKE_PART
    return replace(unfinished.follow_up, sentence="", lead=lead)


def check_cluster(
    connections: Connections, spec: RolloutSpec, identity: ClusterIdentity
) -> tuple[Sequence[Check], Outlook | None]:
    """An error becomes a failed check, and the outlook is None."""
    api = connections.api
    namespace = spec.namespace
    checks: list[Check] = []
    # The check that an error fails, and its subject.
    check_name = CheckName.KUBECONFIG
    subject = api.server
    try:
        checks.append(cluster.api_server_check(identity))
        checks += cluster.clock_checks(wiring.now(), api.server_time())
        checks += _access_checks(api, namespace, spec.policy)
        check_name = CheckName.NODES
        subject = spec.selection.selector or "all nodes"
        nodes = read_nodes(api)
        targets = ask_hosts(connections, spec, nodes, replace(spec.probe, for_doctor=True))
        checks += _node_checks(api, spec, nodes, targets, subject=subject)
        checks_of_hosts = _host_checks(spec, nodes, targets)
        checks += checks_of_hosts
        check_name = CheckName.DRAIN
        unfinished = read_unfinished_summary(api, namespace, nodes)
        snapshot = read_cluster(api, namespace)
        plan = _plan_all_nodes(spec, snapshot, targets)
        checks += _planning_checks(plan, snapshot, checks_of_hosts)
    except RolloutError as error:
        checks.append(error_check(check_name, subject, error))
        return checks, None
    has_pending = any(node.staged or node.detected_by for node in plan.nodes)
    return checks, Outlook(unfinished, has_pending)


def _access_checks(api: ClusterApi, namespace: str, policy: Policy) -> Iterator[Check]:
    needed = apply_rights(namespace, policy)
    missing = missing_rights(needed, lambda right: with_retries(has_right, api, right))
    yield from cluster.right_checks(needed, missing)
    yield _lock_check(api, namespace)
    may_use_configmaps = not any(right.resource == "configmaps" for right in missing)
    # Without that right, these checks would repeat the failure.
    if may_use_configmaps:
        yield from _storage_checks(api, namespace)


def _node_checks(
    api: ClusterApi, spec: RolloutSpec, nodes: Sequence[Node], targets: Targets, *, subject: str
) -> Iterator[Check]:
    selected = targets.among(nodes)
    namespace = spec.namespace
    memory = read_memory(api, namespace)
    yield from cluster.memory_checks(memory, f"{namespace}/{marks.MEMORY_NAME}")
    yield from cluster.pause_checks(memory, selected, api.server_time())
    yield from cluster.machine_id_checks([node for node in nodes if not why_unsupported(node)])
    yield cluster.selection_check(subject, len(selected), len(nodes))
    if spec.policy.pools:
        yield from _pool_checks(spec.policy, selected)
    for node in selected:
        unsupported = why_unsupported(node)
        if unsupported:
            yield passed(CheckName.NODE, node.name, f"not contacted: {cause_of(unsupported)}")


def _host_checks(spec: RolloutSpec, nodes: Sequence[Node], targets: Targets) -> Sequence[Check]:
    settings = spec.settings
    has_own_command = bool(settings.reboot.command)
    standings = update_standings(nodes, targets.observations, settings.detect.max_check_age)
    checks: list[Check] = []
    for node in targets.among(nodes):
        if why_unsupported(node):
            continue
        observation = targets.observations.get(node.name)
        standing = standings.get(node.name)
        checks += host_checks(node.name, observation, standing, own_command=has_own_command)
    return checks


def _pool_checks(policy: Policy, nodes: Iterable[Node]) -> Iterator[Check]:
    node_names_by_pool: dict[str, list[str]] = {name: [] for name in order_pools(policy.pools)}
    pools = pools_of(policy)
    for node in nodes:
        pool_name = pools.pool_of(node.labels)
        node_names_by_pool[pool_name].append(node.name)
    return cluster.pool_checks(node_names_by_pool, DEFAULT)


def _storage_checks(api: ClusterApi, namespace: str) -> Iterator[Check]:
    record = record_document(namespace)
    record_error = with_retries(record.why_unwritable, api)
    if record_error:
        yield cluster.unwritable_record_check(record, record_error)
    memory_error = with_retries(why_unwritable, api, namespace)
    if memory_error:
        yield cluster.unwritable_memory_check(memory_document(namespace), memory_error)


def _plan_all_nodes(spec: RolloutSpec, snapshot: ClusterSnapshot, targets: Targets) -> RolloutPlan:
    """Plan idle and held nodes too: their next drain may be blocked."""
    policy = spec.policy
    # The pools then use the policy's `reboot_idle`.
    pools = tuple(replace(pool, reboot_idle=None) for pool in policy.pools)
    policy_of_all = replace(
        policy, skip_blocked=False, reboot_idle=True, include_held=True, pools=pools
    )
    return make_plan(inputs_of(replace(spec, policy=policy_of_all), snapshot, targets))


def _planning_checks(
    plan: RolloutPlan, snapshot: ClusterSnapshot, checks_of_hosts: Sequence[Check]
) -> Iterator[Check]:
    """Hosts that reboot by themselves already failed one of `checks_of_hosts`."""
    yield from cluster.rival_checks(rival_blockers(snapshot.coordinators, snapshot.nodes))
    self_rebooting = {
        check.subject
        for check in checks_of_hosts
        if check.check in _SELF_REBOOTING and check.verdict is Verdict.FAIL
    }
    rival_marks = dict[str, Sequence[RivalMark]]()
    for node in snapshot.nodes:
        marks_on_node = list(marks_of_rivals(node))
        if marks_on_node:
            rival_marks[node.name] = marks_on_node
    self_rebooting -= rival_marks.keys()
    self_rebooting -= nodes_being_upgraded(snapshot.pods).keys()
    yield from cluster.exclusion_checks(
        plan, snapshot.nodes, rival_marks=rival_marks, self_rebooting=self_rebooting
    )
    yield from cluster.drain_checks(plan)


def _lock_check(api: ClusterApi, namespace: str) -> Check:
    subject = f"{namespace}/{marks.LEASE_NAME}"
    try:
        unfinished = find_unfinished(api, namespace)
        lock = read_lock(api, namespace)
        holder = lock.holder
        may_be_alive = bool(holder) and not lock.has_ended
        # Watching takes seconds.
        is_alive = may_be_alive and watch_for_holder(api, namespace)
    except ApiError as error:
        return cluster.unreadable_lock_check(subject, error)
    if unfinished is None:
        return cluster.lock_check(subject, holder, holder_is_alive=is_alive)
    return cluster.lock_check(
        subject,
        holder,
        holder_is_alive=is_alive,
        unfinished=unfinished_heading(unfinished, run_state(unfinished, alive=is_alive)),
        ways_out=commands_clause(unfinished),
        blocks_others=unfinished.blocks_others,
    )
