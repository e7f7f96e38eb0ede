from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import typer

from rollout.adapters.notify import DeliveryError, destinations
from rollout.cli import wiring
from rollout.cli.flags import NODE_ARGUMENTS, takes
from rollout.cli.options import option
from rollout.cli.settings.reading import RULES, Given
from rollout.cli.settings.schema import NotifySettings
from rollout.cli.stages.cluster import (
    connect,
    find_unfinished,
    read_cluster,
    read_memory,
    read_nodes,
    with_patience,
)
from rollout.cli.stages.hosts import Targets, ask_hosts
from rollout.cli.stages.lock import is_holder_alive, lock_snapshot
from rollout.cli.stages.prepare import inputs_of, make_plan
from rollout.cli.stages.request import Request, fresh_request
from rollout.cli.stages.status import rollout_beside
from rollout.errors import ApiError, ExitCode, RolloutError
from rollout.execution.record.memory import why_unwritable
from rollout.execution.record.record import record_document
from rollout.execution.record.unfinished import run_state
from rollout.gather.cluster.documents import memory_of
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
from rollout.model.cluster import Node
from rollout.model.finding import RivalMark
from rollout.model.node_kind import why_unsupported
from rollout.model.notification import Note, render_note
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
from rollout.report.status import FollowUp
from rollout.report.unfinished import heading, ways_out
from rollout.wording import cause

_RESUME = "rollout resume"
_WHEN_FREE = "When the nodes above can take part"

_SELF_REBOOTING = (CheckName.LOCKSMITHD, CheckName.ZINCATI, CheckName.RIVAL)


@takes("cluster", *RULES, "ssh", arguments=NODE_ARGUMENTS)
def doctor(settings: Given, notify_test: bool = option(False, "Send a test notification")) -> None:
    """Check everything a rollout needs, and print a fix for each failed check. Changes nothing.

    \b
    Examples:
      rollout doctor
      rollout doctor -l pool=web -o json
    """
    output = settings.output
    request = fresh_request(settings)
    outlook = Outlook()
    name = settings.cluster.name or settings.cluster.context or "the cluster"
    places = _notification_checks(settings.notify, name, test=notify_test)
    checks = sort_checks((*places, *_cluster_checks(request, outlook)))
    next_step = _next_step(checks, outlook)
    if next_step.command:
        next_step = replace(next_step, command=settings.repeated(next_step.command))
    text = partial(
        doctor_text, checks, every=bool(output.verbose), width=output.width, follow_up=next_step
    )
    output.show(doctor_document(checks), text)
    if any(check.verdict is Verdict.FAIL for check in checks):
        raise typer.Exit(ExitCode.ERROR)


@dataclass(slots=True)
class Outlook:
    """`beside` is the next step for an unfinished rollout.

    `has_pending`: a pending node can be planned.
    """

    beside: FollowUp = field(default_factory=FollowUp)
    has_pending: bool = False


def _next_step(checks: Sequence[Check], outlook: Outlook) -> FollowUp:
    failed = {check.check for check in checks if check.verdict is Verdict.FAIL}
    if failed - {CheckName.LOCK}:
        return FollowUp("", "rollout doctor", lead="After fixing what failed")
    beside = outlook.beside
    if beside.command and (beside.is_first or beside.lead or not outlook.has_pending):
        waits_for_nodes = beside.command == _RESUME and not (outlook.has_pending or beside.is_first)
        return replace(beside, sentence="", lead=_WHEN_FREE if waits_for_nodes else beside.lead)
    if outlook.has_pending:
        return FollowUp("", "rollout plan")
    if any(check.check is CheckName.NODE and check.verdict is Verdict.WARN for check in checks):
        return FollowUp("No node can be planned now.", "rollout plan", lead=_WHEN_FREE)
    return FollowUp("No node waits for a reboot.")


def _cluster_checks(request: Request, outlook: Outlook) -> Iterator[Check]:
    settings = request.settings
    policy = request.policy
    namespace = request.namespace
    stage = CheckName.KUBECONFIG
    subject = settings.cluster.context or "current context"
    try:
        connections = connect(settings)
        api = connections.api
        subject = api.server
        yield cluster.server_check(read_identity(api))
        yield from cluster.clock_checks(wiring.now(), api.server_time())
        needs = apply_rights(namespace, policy)
        missing = missing_rights(needs, lambda right: with_patience(has_right, api, right))
        yield from cluster.right_checks(needs, missing)
        yield _lock(api, namespace)
        if not any(right.resource == "configmaps" for right in missing):
            yield from _storage_checks(api, namespace)
        stage = CheckName.NODES
        subject = request.selection.selector or "all nodes"
        nodes = read_nodes(api)
        targets = ask_hosts(connections, request, nodes, replace(request.probe, units=True))
        selected = targets.among(nodes)
        memory = read_memory(api, namespace)
        yield from cluster.memory_checks(memory, f"{namespace}/{marks.MEMORY_NAME}")
        yield from cluster.pause_checks(memory, selected, api.server_time())
        yield from cluster.machine_id_checks([node for node in nodes if not why_unsupported(node)])
        yield cluster.selection_check(subject, len(selected), len(nodes))
        if policy.pools:
            yield from _pool_checks(policy, selected)
        own_command = bool(settings.reboot.command)
        compared = update_standings(nodes, targets.observations, settings.detect.max_check_age)
        on_hosts: list[Check] = []
        for node in selected:
            unsupported = why_unsupported(node)
            if unsupported:
                yield passed(CheckName.NODE, node.name, f"not asked: {cause(unsupported)}")
            else:
                answer = targets.observations.get(node.name)
                on_hosts += host_checks(
                    node.name, answer, compared.get(node.name), own_command=own_command
                )
        yield from on_hosts
        stage = CheckName.DRAIN
        outlook.beside, _ = rollout_beside(api, namespace, nodes)
        yield from _planning_checks(api, request, targets, outlook=outlook, on_hosts=on_hosts)
    except RolloutError as error:
        try_it = Fix.with_commands("Try", "kubectl get nodes -v 6")
        yield failed(stage, subject, error.message, Fix(error.hint) if error.hint else try_it)


def _pool_checks(policy: Policy, nodes: Iterable[Node]) -> Iterator[Check]:
    members: dict[str, list[str]] = {name: [] for name in order_pools(policy.pools)}
    for node in nodes:
        members[pools_of(policy).pool_of(node.labels)].append(node.name)
    return cluster.pool_checks(members, DEFAULT)


def _storage_checks(api: ClusterApi, namespace: str) -> Iterator[Check]:
    record = record_document(namespace)
    why_no_record = with_patience(record.why_unwritable, api)
    why_no_memory = with_patience(why_unwritable, api, namespace)
    memory = memory_of(namespace)
    yield from cluster.unwritable_checks((record, why_no_record), (memory, why_no_memory))


def _planning_checks(
    api: ClusterApi,
    request: Request,
    targets: Targets,
    outlook: Outlook,
    on_hosts: Sequence[Check],
) -> Iterator[Check]:
    """A host that reboots by itself is reported only `on_hosts`."""
    snapshot = read_cluster(api, request.namespace)
    policy = request.policy
    # Idle nodes are planned, because their next update meets the same budgets.
    pools = tuple(replace(pool, reboot_idle=None) for pool in policy.pools)
    rules = replace(policy, skip_blocked=False, reboot_idle=True, include_held=True, pools=pools)
    plan = make_plan(inputs_of(replace(request, policy=rules), snapshot, targets))
    outlook.has_pending = any(node.staged or node.detected_by for node in plan.nodes)
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
    self_rebooting -= rival_marks.keys()
    self_rebooting -= nodes_being_upgraded(snapshot.pods).keys()
    yield from cluster.exclusion_checks(
        plan, snapshot.nodes, rival_marks=rival_marks, self_rebooting=self_rebooting
    )
    yield from cluster.drain_checks(plan)


def _lock(api: ClusterApi, namespace: str) -> Check:
    subject = f"{namespace}/{marks.LEASE_NAME}"
    try:
        unfinished = find_unfinished(api, namespace)
        lock = lock_snapshot(api, namespace)
        holder = lock.holder
        may_live = bool(holder) and not lock.has_ended
        is_alive = may_live and is_holder_alive(api, namespace)
    except ApiError as error:
        return cluster.unseen_lock_check(subject, error)
    if unfinished is None:
        return cluster.lock_check(subject, holder, is_alive=is_alive)
    return cluster.lock_check(
        subject,
        holder,
        is_alive=is_alive,
        unfinished=heading(unfinished, run_state(unfinished, alive=is_alive)),
        ways_out=ways_out(unfinished),
        blocks=unfinished.blocks_others,
    )


def _notification_checks(options: NotifySettings, name: str, *, test: bool) -> Iterator[Check]:
    body = "rollout doctor --notify-test sent this. Nothing has happened."
    at = timestamp(wiring.now())
    note = render_note(
        Note(event="test", at=at, cluster=name, title="test of notifications", body=body)
    )
    for place in destinations(options.url):
        try:
            if test:
                place.send(note)
        except DeliveryError as error:
            yield warned(
                CheckName.NOTIFICATIONS,
                place.name,
                f"the test did not arrive: {error}",
                Fix("Check its URL in notify.url."),
            )
        else:
            result = "accepted a test" if test else "not tried: --notify-test sends a test"
            yield passed(CheckName.NOTIFICATIONS, place.name, result)
