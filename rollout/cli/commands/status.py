"""`rollout status`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rollout.cli import wiring
from rollout.cli.flags import option, takes
from rollout.cli.settings.reading import SELECTION, Given
from rollout.cli.settings.rules import policy_of
from rollout.cli.terminal import say, show, show_bytes
from rollout.model.policy import Policy
from rollout.model.text import counted

if TYPE_CHECKING:
    from rollout.planning.eligibility.status import NodeStatus
    from rollout.report.status import FollowUp


@takes("cluster", *SELECTION, "ssh")
def status(
    settings: Given,
    run: bool = option(False, "Show the running or interrupted rollout, instead of the nodes"),
    watch: bool = option(False, "Show the rollout again and again until it has ended", "", "--watch", "-w"),
    pending: bool = option(False, "Only nodes that wait for a reboot, or that a rollout is about"),
) -> None:
    """Show which nodes wait for a reboot, what keeps the others, and a rollout that is under way or was interrupted.

    \b
    Examples:
      rollout status
      rollout status -l node-role.kubernetes.io/worker -o json
      rollout status --watch
    """
    from rollout.cli.stages.gather import ask_hosts, read_nodes, seen_before
    from rollout.cli.stages.run_status import rollout_beside, show_run, watch_run
    from rollout.cli.stages.session import connect, connect_cluster
    from rollout.planning.eligibility.status import node_statuses
    from rollout.report.status import status_text

    namespace, output, policy = settings.lock.namespace, settings.output, policy_of(settings)
    if watch or run:
        (watch_run if watch else show_run)(connect_cluster(settings.cluster), namespace, output)
        return
    session = connect(settings, policy)
    targets = ask_hosts(session, nodes := read_nodes(session))
    (memory, proven), now = seen_before(session), session.api.server_time()
    rollout, stages = rollout_beside(session, nodes)
    shown, own = targets.among(nodes), targets.own_node
    rows = node_statuses(shown, targets.hosts, targets.observations, policy.pools, memory, now, own, proven)
    statuses = [replace(row, under_way=stages[row.node]) if row.node in stages else row for row in rows]
    if output.as_json:
        _write_nodes(statuses, rollout, only_pending=pending)
        return
    text = status_text(
        statuses,
        width=output.width,
        only_pending=pending,
        wide=output.is_wide,
        asked=session.probe.sources,
        memory=memory,
        now=now,
        rollout=rollout,
        closed=_closed(policy),
        repeated=settings.repeated,
    )
    show(text)


def _closed(policy: Policy) -> str:
    """Return why no node, or none of a pool, may be started now, as sentences; empty where all may."""
    from rollout.planning.eligibility.schedule import Schedule

    schedule, now = Schedule.of(policy.gates.windows), wiring.now()
    if why := schedule.closed(now):
        return f"No node is started now: {why}."
    pools = {pool.name: schedule.in_pool(policy, pool.name).closed(now) for pool in policy.pools}
    return " ".join(f"No node of the pool {name} is started now: {why}." for name, why in pools.items() if why)


def _write_nodes(statuses: "Sequence[NodeStatus]", rollout: "FollowUp", *, only_pending: bool) -> None:
    """Nodes for programs; what people should know besides stands on standard error."""
    from rollout.model.json_text import json_document
    from rollout.report.status import status_document

    rows = [row for row in statuses if row.is_pending or not only_pending]
    show_bytes(json_document(status_document(rows, statuses)))
    unknown = sum(not row.judged for row in statuses if row not in rows)
    if unknown:
        say(f"warning: of {counted(unknown, 'node')} it is not known whether a reboot is pending: rollout status")
    if rollout.sentence:
        say(f"{rollout.sentence} See: {rollout.command}")
