"""`rollout status`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.flags import CLUSTER, HOSTS, LISTING, SELECTION, takes
from rollout.cli.settings.reading import Given
from rollout.cli.settings.rules import detected_by, policy_of, probe_of, selection_of
from rollout.cli.settings.schema import Output, OutputFormat

if TYPE_CHECKING:
    from datetime import datetime

    from rollout.cli.stages.gather import Targets
    from rollout.model.cluster import Node
    from rollout.model.gates import WindowPolicy
    from rollout.model.memory import Memory
    from rollout.model.policy import Pool, Selection
    from rollout.planning.status import NodeStatus
    from rollout.ports import ClusterApi
    from rollout.report.status import FollowUp

RunOption = Annotated[bool, typer.Option("--run", help="Show the running or interrupted rollout, instead of the nodes")]
WatchOption = Annotated[
    bool,
    typer.Option("--watch", "-w", help="Show the rollout again and again until it has ended"),
]
PendingOption = Annotated[
    bool, typer.Option("--pending", help="Only nodes that wait for a reboot, or that a rollout is about")
]


@takes(*CLUSTER, *SELECTION, *HOSTS, formats=LISTING)
def status(settings: Given, run: RunOption = False, watch: WatchOption = False, pending: PendingOption = False) -> None:
    """Show which nodes wait for a reboot, what keeps the others, and a rollout that is under way or was interrupted.

    \b
    Examples:
      rollout status
      rollout status -l node-role.kubernetes.io/worker -o json
      rollout status --watch
      kubectl describe $(rollout status --pending -o name)
    """
    from rollout.cli.stages.gather import ask_hosts, connect, connect_cluster, read_nodes
    from rollout.cli.stages.remembering import remembered
    from rollout.cli.stages.run_status import rollout_beside, show_run
    from rollout.cli.terminal import show
    from rollout.report.status import status_text

    selection, namespace, output = selection_of(settings), settings.lock.namespace, settings.output
    rules, probe = policy_of(settings), probe_of(settings, detected_by(settings))
    if watch:
        _watch_run(connect_cluster(settings.cluster), namespace, output)
        return
    if run:
        show_run(connect_cluster(settings.cluster), namespace, output)
        return
    connections = connect(settings, selection)
    nodes = read_nodes(connections)
    targets = ask_hosts(nodes, connections, selection, settings.ssh, probe)
    memory, now = remembered(connections, namespace), connections.api.server_time()
    rollout, stages = rollout_beside(connections.api, nodes, namespace)
    statuses = _statuses(nodes, targets, selection, rules.pools, (memory, now), stages)
    if output.is_document or output.as_names:
        _write_nodes(statuses, output, rollout, only_pending=pending)
        return
    text = status_text(
        statuses,
        width=output.width,
        only_pending=pending,
        wide=output.is_wide,
        asked=probe.sources,
        memory=memory,
        now=now,
        rollout=rollout,
        closed=_closed(rules.gates.windows),
        repeated=lambda command: _repeated(command, settings),
    )
    show(text)


def _closed(windows: "WindowPolicy") -> str:
    """Why no node may be started now, as a sentence; empty where one may."""
    from rollout.cli import wiring
    from rollout.planning.schedule import Schedule

    why = Schedule.of(windows).closed(wiring.system_clock().now())
    return f"No node is started now: {why}." if why else ""


def _repeated(command: str, settings: Given) -> str:
    """The command about the same cluster, and where it takes nodes, about the same of them."""
    word = command.split()[1]
    of_nodes = (*SELECTION, *HOSTS) if word in ("plan", "doctor", "status") else HOSTS if word == "resume" else ()
    return settings.repeated(command, *CLUSTER, *of_nodes)


def _statuses(
    nodes: "Sequence[Node]",
    targets: "Targets",
    selection: "Selection",
    own_rules: "Sequence[Pool]",
    remembered: "tuple[Memory, datetime | None]",
    stages: Mapping[str, str],
) -> "Sequence[NodeStatus]":
    """A row for each node that is meant, with how far a rollout has come with it."""
    from rollout.planning.eligibility import excluded_by_name
    from rollout.planning.status import node_statuses

    shown = [node for node in nodes if node.name in targets.selected and not excluded_by_name(node.name, selection)]
    rows = node_statuses(shown, targets.hosts, targets.observations, own_rules, *remembered, own_node=targets.own_node)
    return [replace(row, under_way=stages[row.node]) if row.node in stages else row for row in rows]


def _write_nodes(statuses: "Sequence[NodeStatus]", output: Output, rollout: "FollowUp", *, only_pending: bool) -> None:
    """Nodes for programs; what people should know besides stands on standard error."""
    from rollout.cli.terminal import say, show_bytes, show_names
    from rollout.model.json_text import json_document
    from rollout.model.text import counted
    from rollout.report.status import status_document

    rows = [row for row in statuses if row.is_pending or not only_pending]
    if output.as_names:
        show_names(row.node for row in rows)
    else:
        show_bytes(output.document(json_document(status_document(rows, statuses))))
    unknown = sum(not row.judged for row in statuses if row not in rows)
    if unknown:
        say(f"warning: of {counted(unknown, 'node')} it is not known whether a reboot is pending: rollout status")
    if rollout.sentence:
        say(f"{rollout.sentence} See: {rollout.command}")


def _watch_run(api: "ClusterApi", namespace: str, output: Output) -> None:
    from rollout.cli.stages.run_status import watch_run
    from rollout.errors import UsageError

    if output.format in (OutputFormat.YAML, OutputFormat.NAME):
        raise UsageError("--watch prints text, or JSON lines", hint="Drop -o, or use: -o json")
    watch_run(api, namespace, output)
