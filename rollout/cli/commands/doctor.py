"""`rollout doctor`."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from rollout.cli.options.cluster import ClusterOptions, LeaseOptions
from rollout.cli.options.general import GeneralOptions
from rollout.cli.options.nodes import SelectionOptions
from rollout.cli.options.policy import PolicyOptions
from rollout.cli.options.reboot import RebootOptions
from rollout.cli.options.ssh import HostKeys, SshOptions
from rollout.errors import ExitCode, RolloutError

if TYPE_CHECKING:
    from rollout.cli.gathering import Connections, Targets
    from rollout.gather.doctor.checks import Check
    from rollout.model.cluster import ClusterSnapshot
    from rollout.model.plan import RolloutPlan
    from rollout.model.policy import Policy


def doctor(
    cluster: ClusterOptions,
    selection: SelectionOptions,
    policy: PolicyOptions,
    ssh: SshOptions,
    reboot: RebootOptions,
    lease: LeaseOptions,
    general: GeneralOptions,
) -> None:
    """Check everything that a rollout needs, and name the fix of what is missing; touch nothing.

    \b
    Examples:
      rollout doctor
      rollout doctor -l pool=web -o json
    """
    from rollout.cli.terminal import show, show_bytes
    from rollout.gather.doctor.checks import Verdict, ordered
    from rollout.report.doctor import doctor_document, doctor_text

    checks = ordered(_examined(cluster, selection, policy, ssh, reboot, lease))
    if general.as_json:
        show_bytes(doctor_document(checks))
    else:
        show(doctor_text(checks, every=general.verbose))
    if any(check.verdict is Verdict.FAIL for check in checks):
        raise typer.Exit(ExitCode.ERROR)


def _examined(
    cluster: ClusterOptions,
    selection: SelectionOptions,
    policy: PolicyOptions,
    ssh: SshOptions,
    reboot: RebootOptions,
    lease: LeaseOptions,
) -> Iterator["Check"]:
    """Check after check, until one stands in the way of all that follow."""
    from rollout.cli.gathering import ask_hosts, connect, read_nodes
    from rollout.cli.unfinished import lock_check
    from rollout.gather.cluster.snapshot import read_identity
    from rollout.gather.doctor.checks import CheckName, failed, passed
    from rollout.gather.doctor.cluster import server_checks

    stage, subject = CheckName.KUBECONFIG, cluster.context or "current context"
    try:
        connections = connect(cluster, selection.selection, ssh)
        subject = connections.api.server
        yield from server_checks(read_identity(connections.api))
        yield from _rights(connections, policy, lease)
        yield lock_check(connections, lease.lease_namespace)
        stage, subject = CheckName.NODES, selection.selector or "all nodes"
        nodes = read_nodes(connections)
        targets = ask_hosts(nodes, connections, selection.selection, ssh)
        yield passed(CheckName.NODES, subject, f"{len(targets.selected)} of {len(nodes)} nodes are selected")
        yield from _hosts(targets, connections, selection, ssh, own_command=bool(reboot.digest))
        stage = CheckName.DRAIN
        yield from _forecast(targets, connections, selection, reboot.added_to(policy.policy))
    except RolloutError as error:
        yield failed(stage, subject, error.message, error.hint or "Try the same with kubectl -v 6.")


def _rights(connections: "Connections", policy: PolicyOptions, lease: LeaseOptions) -> Iterable["Check"]:
    from rollout.cli.gathering import with_patience
    from rollout.gather.cluster.rights import apply_rights, missing_rights
    from rollout.gather.doctor.cluster import right_checks

    needs = apply_rights(lease.lease_namespace, disable_eviction=policy.disable_eviction)
    return right_checks(needs, missing_rights(connections.api, needs, each=with_patience))


def _hosts(
    targets: "Targets", connections: "Connections", selection: SelectionOptions, ssh: SshOptions, *, own_command: bool
) -> Iterable["Check"]:
    from rollout.cli import wiring
    from rollout.gather.doctor.doctor import examine_all
    from rollout.gather.doctor.hosts import all_host_checks
    from rollout.model.host import HostFacts
    from rollout.planning.eligibility import excluded_by_name

    chosen = [name for name in targets.selected if not excluded_by_name(name, selection.selection)]
    answering = {name: found.host for name, found in targets.observations.items() if isinstance(found, HostFacts)}
    examined = examine_all(
        answering,
        connections.shell,
        wiring.system_clock(),
        timeout=ssh.probe_timeout,
        concurrency=ssh.probe_concurrency,
    )
    keys_checked = ssh.host_key_checking is not HostKeys.OFF
    return all_host_checks(chosen, targets.observations, examined, keys_checked=keys_checked, own_command=own_command)


def _forecast(
    targets: "Targets", connections: "Connections", selection: SelectionOptions, policy: "Policy"
) -> Iterator["Check"]:
    """What planning would say: rivals, nodes that cannot take part, and drains that are bound to fail."""
    from rollout.cli.deciding import Intent, decide
    from rollout.cli.gathering import read_cluster

    snapshot = read_cluster(connections)
    # every host is forecast, staged or not: tomorrow's update meets the same budgets
    rules = replace(policy, skip_blocked=False, reboot_idle=True)
    plan = decide(Intent(selection.selection, rules), snapshot, targets)
    yield from _rivals(snapshot)
    yield from _exclusions(plan)
    yield from _drains(plan)


def _rivals(snapshot: "ClusterSnapshot") -> Iterator["Check"]:
    """Other reboot coordinators, as plans name them."""
    from rollout.gather.doctor.checks import CheckName, failed, passed
    from rollout.planning.rivals import rivals

    found = rivals(snapshot, ())
    for rival in found:
        message, _, way_out = rival.message.partition(": ")
        yield failed(CheckName.RIVAL, rival.object, message, way_out)
    if not found:
        yield passed(CheckName.RIVAL, "cluster", "no other reboot coordinator was found")


def _exclusions(plan: "RolloutPlan") -> Iterator["Check"]:
    from rollout.gather.doctor.checks import CheckName, failed, warned
    from rollout.model.plan import ExclusionReason

    fixes = {
        ExclusionReason.NOT_READY: "Mend it first: kubectl describe node.",
        ExclusionReason.LEFT_CORDONED: "rollout resume --retry-failed takes it again; else kubectl uncordon it.",
        ExclusionReason.CORDONED: "kubectl uncordon it, or use --include-cordoned.",
        ExclusionReason.PAUSED: "Remove the annotation once the node may be rebooted.",
    }
    for found in plan.excluded:
        if found.reason is ExclusionReason.RIVAL:
            yield failed(
                CheckName.RIVAL, found.node, found.message, "Stop the other coordinator, or --exclude the node."
            )
        elif found.reason in fixes:
            yield warned(CheckName.NODE, found.node, found.message, fixes[found.reason])


def _drains(plan: "RolloutPlan") -> Iterator["Check"]:
    from rollout.gather.doctor.checks import CheckName, failed, passed, warned
    from rollout.model.plan import BlockerKind

    blocked = {found.node for found in plan.blockers}
    for blocker in plan.blockers:
        if blocker.kind is BlockerKind.RIVAL:
            continue
        yield failed(
            CheckName.DRAIN, blocker.node, f"{blocker.object} {blocker.message}", "Clear it, or use --skip-blocked."
        )
    for warning in plan.warnings:
        yield warned(
            CheckName.DRAIN, warning.node or "cluster", f"{warning.object} {warning.message}", "See rollout plan."
        )
    told = blocked | {warning.node for warning in plan.warnings}
    for node in plan.nodes:
        if node.name not in told:
            yield passed(CheckName.DRAIN, node.name, f"{node.evict} pods can be moved")
