from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import typer
from msgspec.structs import replace

from rollout.adapters.notify import DeliveryError, destinations
from rollout.cli import wiring
from rollout.cli.flags import NODE_ARGUMENTS, takes
from rollout.cli.options import option
from rollout.cli.settings.reading import RULES, CommandSettings
from rollout.cli.settings.schema import NotifySettings
from rollout.cli.stages.cluster import connect, read_cluster, read_memory, read_nodes, with_patience
from rollout.cli.stages.hosts import Targets, ask_hosts
from rollout.cli.stages.lock import read_lock, watch_for_holder
from rollout.cli.stages.prepare import inputs_of, make_plan
from rollout.cli.stages.request import Request, fresh_request
from rollout.cli.stages.status import read_unfinished_summary
from rollout.cli.stages.unfinished import find_unfinished
from rollout.errors import ApiError, ExitCode, RolloutError
from rollout.execution.record.memory import why_unwritable
from rollout.execution.record.record import record_document
from rollout.execution.record.unfinished import run_state
from rollout.gather.cluster.documents import memory_document
from rollout.gather.cluster.rights import apply_rights, has_right, missing_rights
from rollout.gather.cluster.snapshot import read_identity
from rollout.gather.doctor import cluster
from rollout.gather.doctor.checks import (
    Check,
    CheckName,
    Fix,
    Verdict,
    failed,
    passed,
    sort_checks,
    warned,
)
from rollout.gather.doctor.hosts import host_checks
from rollout.model import marks
from rollout.model.cluster import ClusterSnapshot, Node
from rollout.model.finding import RivalMark
from rollout.model.node_kind import why_unsupported
from rollout.model.notification import Note, render_note
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy
from rollout.model.timestamps import timestamp
from rollout.planning.eligibility.pools import DEFAULT, order_pools, pools_of
from rollout.planning.eligibility.rivals import (
    marks_of_rivals,
    nodes_being_upgraded,
    rival_blockers,
)
from rollout.planning.eligibility.versions import update_standings
from rollout.ports import ClusterApi
from rollout.report.doctor import doctor_document, doctor_text
from rollout.report.status import NO_FOLLOW_UP, FollowUp
from rollout.report.unfinished import commands_clause, unfinished_heading
from rollout.wording import cause_of

_RESUME = "rollout resume"
_WHEN_NODES_CAN_TAKE_PART = "When the nodes above can take part"

_SELF_REBOOTING = (CheckName.LOCKSMITHD, CheckName.ZINCATI, CheckName.RIVAL)


@takes("cluster", *RULES, "ssh", arguments=NODE_ARGUMENTS)
def doctor(
    settings: CommandSettings, notify_test: bool = option(False, "Send a test notification")
) -> None:
    """Check everything a rollout needs, and print a fix for each failed check. Changes nothing.

    \b
    Examples:
      rollout doctor
      rollout doctor -l pool=web -o json
    """
    output = settings.output
    request = fresh_request(settings)
    name = settings.cluster.name or settings.cluster.context or "the cluster"
    notification_checks = _notification_checks(settings.notify, name, test=notify_test)
    cluster_checks, outlook = _check_cluster(request)
    checks = sort_checks((*notification_checks, *cluster_checks))
    next_step = _next_step(checks, outlook)
    if next_step.command:
        next_step = replace(next_step, command=settings.with_typed_settings(next_step.command))
    text = partial(
        doctor_text, checks, show_all=bool(output.verbose), width=output.width, follow_up=next_step
    )
    output.show(doctor_document(checks), text)
    if any(check.verdict is Verdict.FAIL for check in checks):
        raise typer.Exit(ExitCode.ERROR)


class Outlook(NamedTuple):
    """What a rollout could do next, if no check fails."""

    # The next step for an unfinished rollout; empty without one.
    unfinished: FollowUp = NO_FOLLOW_UP
    has_pending: bool = False


def _next_step(checks: Sequence[Check], outlook: Outlook) -> FollowUp:
    """Return the first of: fix failures, continue the unfinished rollout, plan a new one."""
    failed = {check.check for check in checks if check.verdict is Verdict.FAIL}
    # The unfinished rollout, whose step follows, can fail the lock's check.
    if failed - {CheckName.LOCK}:
        return FollowUp("", "rollout doctor", lead="After fixing what failed")
    unfinished = outlook.unfinished
    is_next = unfinished.is_first or unfinished.lead or not outlook.has_pending
    if unfinished.command and is_next:
        return _unfinished_step(unfinished, has_pending=outlook.has_pending)
    if outlook.has_pending:
        return FollowUp("", "rollout plan")
    if any(check.check is CheckName.NODE and check.verdict is Verdict.WARN for check in checks):
        no_node = "No node can be planned now."
        return FollowUp(no_node, "rollout plan", lead=_WHEN_NODES_CAN_TAKE_PART)
    return FollowUp("No node is waiting for a reboot.")


def _unfinished_step(unfinished: FollowUp, *, has_pending: bool) -> FollowUp:
    """Leave out the sentence: the lock's check describes the rollout."""
    only_starts_nodes = unfinished.command == _RESUME and not unfinished.is_first
    lead = unfinished.lead
    if only_starts_nodes and not has_pending:
        lead = _WHEN_NODES_CAN_TAKE_PART
    return replace(unfinished, sentence="", lead=lead)


def _check_cluster(request: Request) -> tuple[Sequence[Check], Outlook]:
    """The first error ends the checks, and is the last one."""
    namespace = request.namespace
    checks: list[Check] = []
    # The check that an error fails, and its subject.
    stage = CheckName.KUBECONFIG
    subject = request.settings.cluster.context or "current context"
    try:
        connections = connect(request.settings)
        api = connections.api
        subject = api.server
        checks.append(cluster.server_check(read_identity(api)))
        checks += cluster.clock_checks(wiring.now(), api.server_time())
        checks += _access_checks(api, namespace, request.policy)
        stage = CheckName.NODES
        subject = request.selection.selector or "all nodes"
        nodes = read_nodes(api)
        targets = ask_hosts(connections, request, nodes, replace(request.probe, units=True))
        checks += _node_checks(api, request, nodes, targets, subject=subject)
        on_hosts = _host_checks(request, nodes, targets)
        checks += on_hosts
        stage = CheckName.DRAIN
        unfinished = read_unfinished_summary(api, namespace, nodes).follow_up
        snapshot = read_cluster(api, namespace)
        plan = _plan_with_idle_nodes(request, snapshot, targets)
        checks += _planning_checks(plan, snapshot, on_hosts)
    except RolloutError as error:
        try_it = Fix.with_commands("Try", "kubectl get nodes -v 6")
        fix = Fix(error.hint) if error.hint else try_it
        checks.append(failed(stage, subject, error.message, fix))
        return checks, Outlook()
    has_pending = any(node.staged or node.detected_by for node in plan.nodes)
    return checks, Outlook(unfinished, has_pending)


def _access_checks(api: ClusterApi, namespace: str, policy: Policy) -> Iterator[Check]:
    needed = apply_rights(namespace, policy)
    missing = missing_rights(needed, lambda right: with_patience(has_right, api, right))
    yield from cluster.right_checks(needed, missing)
    yield _lock_check(api, namespace)
    # The missing right is already reported.
    if not any(right.resource == "configmaps" for right in missing):
        yield from _storage_checks(api, namespace)


def _node_checks(
    api: ClusterApi, request: Request, nodes: Sequence[Node], targets: Targets, *, subject: str
) -> Iterator[Check]:
    selected = targets.among(nodes)
    namespace = request.namespace
    memory = read_memory(api, namespace)
    yield from cluster.memory_checks(memory, f"{namespace}/{marks.MEMORY_NAME}")
    yield from cluster.pause_checks(memory, selected, api.server_time())
    yield from cluster.machine_id_checks([node for node in nodes if not why_unsupported(node)])
    yield cluster.selection_check(subject, len(selected), len(nodes))
    if request.policy.pools:
        yield from _pool_checks(request.policy, selected)
    for node in selected:
        unsupported = why_unsupported(node)
        if unsupported:
            yield passed(CheckName.NODE, node.name, f"not asked: {cause_of(unsupported)}")


def _host_checks(request: Request, nodes: Sequence[Node], targets: Targets) -> Sequence[Check]:
    settings = request.settings
    own_command = bool(settings.reboot.command)
    standings = update_standings(nodes, targets.observations, settings.detect.max_check_age)
    checks: list[Check] = []
    for node in targets.among(nodes):
        if not why_unsupported(node):
            answer = targets.observations.get(node.name)
            checks += host_checks(
                node.name, answer, standings.get(node.name), own_command=own_command
            )
    return checks


def _pool_checks(policy: Policy, nodes: Iterable[Node]) -> Iterator[Check]:
    members: dict[str, list[str]] = {name: [] for name in order_pools(policy.pools)}
    for node in nodes:
        members[pools_of(policy).pool_of(node.labels)].append(node.name)
    return cluster.pool_checks(members, DEFAULT)


def _storage_checks(api: ClusterApi, namespace: str) -> Iterator[Check]:
    record = record_document(namespace)
    record_error = with_patience(record.why_unwritable, api)
    memory = memory_document(namespace)
    memory_error = with_patience(why_unwritable, api, namespace)
    yield from cluster.unwritable_checks(record, record_error, memory, memory_error)


def _plan_with_idle_nodes(
    request: Request, snapshot: ClusterSnapshot, targets: Targets
) -> RolloutPlan:
    """Plan idle and held nodes too, because their next update meets the same budgets."""
    policy = request.policy
    pools = tuple(replace(pool, reboot_idle=None) for pool in policy.pools)
    rules = replace(policy, skip_blocked=False, reboot_idle=True, include_held=True, pools=pools)
    return make_plan(inputs_of(replace(request, policy=rules), snapshot, targets))


def _planning_checks(
    plan: RolloutPlan, snapshot: ClusterSnapshot, on_hosts: Sequence[Check]
) -> Iterator[Check]:
    """Yield what keeps nodes out of the plan, or blocks their drains.

    A host that reboots by itself has failed a check in `on_hosts`, so it is not reported again.
    """
    yield from cluster.rival_checks(rival_blockers(snapshot.coordinators, snapshot.nodes))
    self_rebooting = {
        check.subject
        for check in on_hosts
        if check.check in _SELF_REBOOTING and check.verdict is Verdict.FAIL
    }
    rival_marks = dict[str, Sequence[RivalMark]]()
    for node in snapshot.nodes:
        found = list(marks_of_rivals(node))
        if found:
            rival_marks[node.name] = found
    # Something besides the host stands in the way.
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


def _notification_checks(options: NotifySettings, name: str, *, test: bool) -> Iterator[Check]:
    body = "rollout doctor --notify-test sent this. Nothing has happened."
    at = timestamp(wiring.now())
    note = render_note(
        Note(event="test", at=at, cluster=name, title="test notification", body=body)
    )
    for place in destinations(options.url):
        try:
            if test:
                place.send(note)
        except DeliveryError as error:
            yield warned(
                CheckName.NOTIFICATIONS,
                place.name,
                f"the test was not delivered: {error}",
                Fix("Check its URL in notify.url."),
            )
        else:
            result = "accepted a test" if test else "not tried: --notify-test sends a test"
            yield passed(CheckName.NOTIFICATIONS, place.name, result)
