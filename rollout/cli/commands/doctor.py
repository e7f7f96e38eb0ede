"""`rollout doctor`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.options import pools
from rollout.cli.options.cluster import ClusterOptions, LeaseOptions, NameOptions
from rollout.cli.options.declaration import NOTIFICATIONS, Flag
from rollout.cli.options.detect import DetectCommandOptions
from rollout.cli.options.general import GeneralOptions
from rollout.cli.options.metrics import ListenOptions, MetricsOptions
from rollout.cli.options.nodes import SelectionOptions
from rollout.cli.options.notify import NotifyOptions
from rollout.cli.options.policy import PolicyOptions
from rollout.cli.options.reboot import RebootOptions
from rollout.cli.options.ssh import HostKeys, SshOptions
from rollout.errors import ExitCode, RolloutError

if TYPE_CHECKING:
    from rollout.cli.stages.gather import Connections, Targets
    from rollout.gather.doctor.checks import Check
    from rollout.gather.hosts.probe_command import Probe
    from rollout.model.cluster import Node
    from rollout.model.policy import Policy

NotifyTestOption = Annotated[bool, Flag(NOTIFICATIONS, "Send a test there.")]


def doctor(  # noqa: PLR0917 - typer's parameters; each is a group of options
    call: typer.Context,
    cluster: ClusterOptions,
    selection: SelectionOptions,
    policy: PolicyOptions,
    ssh: SshOptions,
    reboot: RebootOptions,
    detect_command: DetectCommandOptions,
    lease: LeaseOptions,
    notify: NotifyOptions,
    metrics: MetricsOptions,
    listen: ListenOptions,
    naming: NameOptions,
    general: GeneralOptions,
    notify_test: NotifyTestOption = False,
) -> None:
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

    rules = detect_command.added_to(reboot.added_to(policy.with_pools(pools.given(call))))
    probe = detect_command.probe(rules.detect)
    name = naming.cluster_name or notify.notify_cluster or cluster.context or "the cluster"
    places = (*notification_checks(notify, name, test=notify_test), *metrics_checks(metrics, listen))
    checks = ordered((*places, *_examined(cluster, selection, rules, ssh, lease, probe)))
    if general.as_json:
        show_bytes(doctor_document(checks))
    else:
        show(doctor_text(checks, every=bool(general.verbose), width=general.width))
    if any(check.verdict is Verdict.FAIL for check in checks):
        raise typer.Exit(ExitCode.ERROR)


def _examined(
    cluster: ClusterOptions,
    selection: SelectionOptions,
    policy: "Policy",
    ssh: SshOptions,
    lease: LeaseOptions,
    probe: "Probe",
) -> Iterator["Check"]:
    """Check after check, until one stands in the way of all that follow."""
    from rollout.cli import wiring
    from rollout.cli.stages.gather import ask_hosts, connect, read_nodes
    from rollout.gather.cluster.snapshot import read_identity
    from rollout.gather.doctor.checks import CheckName, failed
    from rollout.gather.doctor.cluster import clock_checks, selection_check, server_checks

    stage, subject = CheckName.KUBECONFIG, cluster.context or "current context"
    try:
        connections = connect(cluster, selection.selection, ssh)
        subject = connections.api.server
        yield from server_checks(read_identity(connections.api))
        yield from clock_checks(wiring.system_clock().now(), connections.api.server_time())
        rights = tuple(_rights(connections, policy, lease))
        yield from rights
        yield _lock(connections, lease.lease_namespace)
        yield from _unwritable(connections, lease.lease_namespace, rights)
        stage, subject = CheckName.NODES, selection.selector or "all nodes"
        nodes = read_nodes(connections)
        targets = ask_hosts(nodes, connections, selection.selection, ssh, probe)
        yield from _remembered(connections, [node for node in nodes if node.name in targets.selected], lease)
        yield selection_check(subject, targets.number_of(selection.selection), len(nodes))
        yield from _pools([node for node in nodes if node.name in targets.selected], policy)
        yield from _hosts(targets, connections, selection, ssh, own_command=bool(policy.reboot_command))
        stage = CheckName.DRAIN
        yield from _forecast(targets, connections, selection, policy, lease)
    except RolloutError as error:
        yield failed(stage, subject, error.message, error.hint or "Try: kubectl get nodes -v 6")


def _remembered(connections: "Connections", nodes: Sequence["Node"], lease: LeaseOptions) -> Iterator["Check"]:
    from rollout.cli.stages.gather import with_patience
    from rollout.gather.cluster.memory import read_memory
    from rollout.gather.doctor.cluster import memory_checks, pause_checks
    from rollout.model import marks

    memory = with_patience(lambda: read_memory(connections.api, lease.lease_namespace))
    yield from memory_checks(memory, f"{lease.lease_namespace}/{marks.MEMORY_NAME}")
    yield from pause_checks(memory, nodes, connections.api.server_time())


def _unwritable(connections: "Connections", namespace: str, rights: Iterable["Check"]) -> Iterator["Check"]:
    """What the API server would not store although this user has the right to it, by its answers to dry runs."""
    from rollout.cli.stages.gather import with_patience
    from rollout.execution.record.memory import why_unwritable
    from rollout.execution.record.standing import record_of
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


def _rights(connections: "Connections", policy: "Policy", lease: LeaseOptions) -> Iterable["Check"]:
    from rollout.cli.stages.gather import with_patience
    from rollout.gather.cluster.rights import apply_rights, missing_rights
    from rollout.gather.doctor.cluster import right_checks

    needs = apply_rights(lease.lease_namespace, disable_eviction=policy.drain.disable_eviction)
    return right_checks(needs, missing_rights(connections.api, needs, ask=with_patience))


def _hosts(
    targets: "Targets", connections: "Connections", selection: SelectionOptions, ssh: SshOptions, *, own_command: bool
) -> Iterable["Check"]:
    from rollout.cli.open_files import asked_at_once
    from rollout.cli.terminal import error_console
    from rollout.gather.doctor.examination import examine_all
    from rollout.gather.doctor.hosts import all_host_checks
    from rollout.model.host import HostFacts
    from rollout.planning.eligibility import excluded_by_name
    from rollout.report.console import asking_progress

    chosen = [name for name in targets.selected if not excluded_by_name(name, selection.selection)]
    answering = {
        name: observation.host
        for name, observation in targets.observations.items()
        if isinstance(observation, HostFacts)
    }
    with asking_progress(error_console(), len(answering), "examining hosts") as answered:
        examined = examine_all(
            answering,
            connections.shell,
            timeout=ssh.probe_timeout,
            concurrency=asked_at_once(ssh.probe_concurrency, len(answering)),
            on_result=answered,
        )
    keys_checked = ssh.host_key_checking is not HostKeys.OFF
    return all_host_checks(chosen, targets.observations, examined, keys_checked=keys_checked, own_command=own_command)


def _forecast(
    targets: "Targets",
    connections: "Connections",
    selection: SelectionOptions,
    policy: "Policy",
    lease: LeaseOptions,
) -> Iterator["Check"]:
    """What planning would say: rivals, nodes that cannot take part, and drains that are bound to fail."""
    from rollout.cli.stages.gather import read_cluster
    from rollout.cli.stages.plan import Intent, decide
    from rollout.gather.doctor.forecast import drain_checks, exclusion_checks, rival_checks
    from rollout.planning.rivals import rivals

    snapshot = read_cluster(connections, lease.lease_namespace)
    # every host is forecast, staged or not: tomorrow's update meets the same budgets
    own = tuple(replace(pool, reboot_idle=None) for pool in policy.pools)
    rules = replace(policy, skip_blocked=False, reboot_idle=True, include_held=True, pools=own)
    plan = decide(Intent(selection.selection, rules), snapshot, targets)
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
