"""`rollout doctor`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.flags import CLUSTER, HOSTS, RULES, takes
from rollout.cli.settings.reading import Given
from rollout.cli.settings.rules import policy_of, probe_of, selection_of
from rollout.cli.settings.schema import HostKeys
from rollout.errors import ExitCode, RolloutError

if TYPE_CHECKING:
    from rollout.cli.stages.gather import Connections, Targets
    from rollout.gather.doctor.checks import Check
    from rollout.model.cluster import Node
    from rollout.model.policy import Policy

NotifyTestOption = Annotated[bool, typer.Option("--notify-test", help="Send a test of notifications")]


@takes(*CLUSTER, "nodes.allow", "nodes.skip", *RULES, *HOSTS)
def doctor(settings: Given, notify_test: NotifyTestOption = False) -> None:
    """Check everything that a rollout needs, and name the fix of what is missing; touch nothing.

    \b
    Examples:
      rollout doctor
      rollout doctor -l pool=web -o json
    """
    from rollout.cli.stages.places import metrics_checks, notification_checks
    from rollout.cli.terminal import show, show_bytes
    from rollout.gather.doctor.checks import Verdict, ordered
    from rollout.report.doctor import doctor_document, doctor_text

    rules = policy_of(settings)
    name = settings.cluster.name or settings.cluster.context or "the cluster"
    places = (*notification_checks(settings.notify, name, test=notify_test), *metrics_checks(settings.metrics))
    checks = ordered((*places, *_examined(settings, rules)))
    if settings.output.as_json:
        show_bytes(doctor_document(checks))
    else:
        show(doctor_text(checks, every=bool(settings.output.verbose), width=settings.output.width))
    if any(check.verdict is Verdict.FAIL for check in checks):
        raise typer.Exit(ExitCode.ERROR)


def _examined(settings: Given, policy: "Policy") -> Iterator["Check"]:
    """Check after check, until one stands in the way of all that follow."""
    from rollout.cli import wiring
    from rollout.cli.stages.gather import ask_hosts, connect, read_nodes
    from rollout.gather.cluster.snapshot import read_identity
    from rollout.gather.doctor.checks import CheckName, failed
    from rollout.gather.doctor.cluster import clock_checks, selection_check, server_checks

    selection, namespace = selection_of(settings), settings.lock.namespace
    stage, subject = CheckName.KUBECONFIG, settings.cluster.context or "current context"
    try:
        connections = connect(settings, selection)
        subject = connections.api.server
        yield from server_checks(read_identity(connections.api))
        yield from clock_checks(wiring.system_clock().now(), connections.api.server_time())
        rights = tuple(_rights(connections, policy, namespace))
        yield from rights
        yield _lock(connections, namespace)
        yield from _unwritable(connections, namespace, rights)
        stage, subject = CheckName.NODES, selection.selector or "all nodes"
        nodes = read_nodes(connections)
        targets = ask_hosts(nodes, connections, selection, settings.ssh, probe_of(settings, policy.detect))
        yield from _remembered(connections, [node for node in nodes if node.name in targets.selected], namespace)
        yield selection_check(subject, targets.number_of(selection), len(nodes))
        yield from _pools([node for node in nodes if node.name in targets.selected], policy)
        yield from _hosts(targets, connections, settings)
        stage = CheckName.DRAIN
        yield from _forecast(targets, connections, policy, settings)
    except RolloutError as error:
        yield failed(stage, subject, error.message, error.hint or "Try: kubectl get nodes -v 6")


def _remembered(connections: "Connections", nodes: Sequence["Node"], namespace: str) -> Iterator["Check"]:
    from rollout.cli.stages.gather import with_patience
    from rollout.gather.cluster.memory import read_memory
    from rollout.gather.doctor.cluster import memory_checks, pause_checks
    from rollout.model import marks

    memory = with_patience(lambda: read_memory(connections.api, namespace))
    yield from memory_checks(memory, f"{namespace}/{marks.MEMORY_NAME}")
    yield from pause_checks(memory, nodes, connections.api.server_time())


def _unwritable(connections: "Connections", namespace: str, rights: Iterable["Check"]) -> Iterator["Check"]:
    """What the API server would not store although this user has the right to it, by its answers to dry runs."""
    from rollout.cli.stages.gather import with_patience
    from rollout.execution.record.memory import why_unwritable
    from rollout.execution.record.stored import record_of
    from rollout.gather.cluster.memory import memory_of
    from rollout.gather.doctor.checks import Verdict
    from rollout.gather.doctor.cluster import unwritable_checks

    missing = [right.subject for right in rights if right.verdict is not Verdict.PASS]
    if not any(" configmaps " in subject for subject in missing):
        record, memory = record_of(namespace), memory_of(namespace)
        no_record = with_patience(lambda: record.why_unwritable(connections.api))
        no_memory = with_patience(lambda: why_unwritable(connections.api, namespace))
        yield from unwritable_checks((record, no_record), (memory, no_memory))


def _pools(nodes: Sequence["Node"], policy: "Policy") -> Iterable["Check"]:
    from rollout.gather.doctor.cluster import pool_checks
    from rollout.planning.pools import DEFAULT, ordered, pools_of

    if not policy.pools:
        return ()
    members: dict[str, list[str]] = {name: [] for name in ordered(policy.pools)}
    for node in nodes:
        members[pools_of(policy).of(node.labels)].append(node.name)
    return pool_checks(members, DEFAULT)


def _rights(connections: "Connections", policy: "Policy", namespace: str) -> Iterable["Check"]:
    from rollout.cli.stages.gather import with_patience
    from rollout.gather.cluster.rights import apply_rights, missing_rights
    from rollout.gather.doctor.cluster import right_checks

    needs = apply_rights(namespace, disable_eviction=policy.drain.disable_eviction)
    return right_checks(needs, missing_rights(connections.api, needs, ask=with_patience))


def _hosts(targets: "Targets", connections: "Connections", settings: Given) -> Iterable["Check"]:
    from rollout.cli.terminal import error_console
    from rollout.gather.doctor.examination import examine_all
    from rollout.gather.doctor.hosts import all_host_checks
    from rollout.model.host import HostFacts
    from rollout.planning.eligibility import excluded_by_name
    from rollout.report.console import asking_progress

    chosen = [name for name in targets.selected if not excluded_by_name(name, selection_of(settings))]
    answering = {
        name: observation.host
        for name, observation in targets.observations.items()
        if isinstance(observation, HostFacts)
    }
    with asking_progress(error_console(), len(answering), "examining hosts") as answered:
        examined = examine_all(
            answering,
            connections.shell,
            timeout=settings.ssh.probe_timeout,
            concurrency=settings.ssh.probe_concurrency,
            on_result=answered,
        )
    keys_checked = settings.ssh.host_key_checking is not HostKeys.OFF
    own = bool(settings.reboot.command)
    return all_host_checks(chosen, targets.observations, examined, keys_checked=keys_checked, own_command=own)


def _forecast(targets: "Targets", connections: "Connections", policy: "Policy", settings: Given) -> Iterator["Check"]:
    """What planning would say: rivals, nodes that cannot take part, and drains that are bound to fail."""
    from rollout.cli.stages.gather import read_cluster
    from rollout.cli.stages.plan import Intent, decide
    from rollout.gather.doctor.forecast import drain_checks, exclusion_checks, rival_checks
    from rollout.planning.rivals import rivals

    snapshot = read_cluster(connections, settings.lock.namespace)
    # every host is forecast, staged or not: tomorrow's update meets the same budgets
    own = tuple(replace(pool, reboot_idle=None) for pool in policy.pools)
    rules = replace(policy, skip_blocked=False, reboot_idle=True, include_held=True, pools=own)
    plan = decide(Intent(selection_of(settings), rules), snapshot, targets)
    yield from rival_checks(rivals(snapshot, ()))
    yield from exclusion_checks(plan)
    yield from drain_checks(plan)


def _lock(connections: "Connections", namespace: str) -> "Check":
    """Whether a rollout could take the lock now, and whose it is where it could not."""
    from rollout.cli.stages import gather
    from rollout.cli.stages import lock as lock_stage
    from rollout.errors import ApiError
    from rollout.execution.record.unfinished import word_of
    from rollout.gather.doctor.cluster import LockState, lock_check, unseen_lock_check
    from rollout.model import marks
    from rollout.report.unfinished import heading, ways_out

    subject = f"{namespace}/{marks.LEASE_NAME}"
    try:
        unfinished = gather.find_unfinished(connections.api, namespace)
        lock = lock_stage.glance_at_lock(connections.api, namespace)
        holder = lock.holder
        is_alive = bool(holder) and not lock.has_ended and lock_stage.is_holder_alive(connections.api, namespace)
    except ApiError as error:
        return unseen_lock_check(subject, error.message, error.hint)
    if unfinished is None:
        return lock_check(subject, LockState(holder, is_alive))
    text = heading(unfinished, word_of(unfinished, alive=is_alive))
    state = LockState(holder, is_alive, text, ways_out(unfinished), unfinished.blocks)
    return lock_check(subject, state)
