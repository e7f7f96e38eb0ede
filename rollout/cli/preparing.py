"""The stages of apply before anything is touched: connect, read, ask the hosts, decide, show."""

from rollout.cli.deciding import Intent, decide, zones
from rollout.cli.gathering import ask_hosts, connect, read_cluster
from rollout.cli.options.cluster import ClusterOptions, LeaseOptions, LockOptions
from rollout.cli.options.ssh import SshOptions
from rollout.cli.permitting import refuse_without_rights
from rollout.cli.running import Run, run_options, selected_by, tell_conceded
from rollout.cli.terminal import show, width
from rollout.cli.unfinished import refuse_unfinished
from rollout.model.cluster import ClusterSnapshot
from rollout.model.plan import RolloutPlan
from rollout.report.tables import plan_heading, plan_text


def prepared(
    intent: Intent, cluster: ClusterOptions, ssh: SshOptions, lease: LeaseOptions, lock: LockOptions, *, quiet: bool
) -> Run:
    """What is to be run, after showing it; refused without the rights, or beside an unfinished rollout."""
    connections = connect(cluster, intent.selection, ssh)
    refuse_without_rights(connections, intent.policy.drain, lease.lease_namespace)
    snapshot = read_cluster(connections)
    refuse_unfinished(connections, snapshot.nodes, lease.lease_namespace)
    targets = ask_hosts(snapshot.nodes, connections, intent.selection, ssh)
    plan = decide(intent, snapshot, targets)
    if not quiet:
        show(_shown(plan, intent, snapshot))
    conceded = tell_conceded(plan.policy, "the saved plan has") if intent.saved else ()
    options = run_options(selected_by(targets, plan.selection), ssh, lease, lock)
    return Run(plan, targets, connections, options, conceded=conceded)


def _shown(plan: RolloutPlan, intent: Intent, snapshot: ClusterSnapshot) -> str:
    """A saved plan was looked at when it was made: its heading does."""
    if intent.saved:
        return plan_heading(plan, width=width())
    return plan_text(plan, zones=zones(snapshot), width=width())
