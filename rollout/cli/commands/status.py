"""`rollout status`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.options import pools
from rollout.cli.options.cluster import ClusterOptions, LeaseOptions
from rollout.cli.options.declaration import OWN, Flag
from rollout.cli.options.detect import DetectCommandOptions
from rollout.cli.options.general import ListingOptions, OutputFormat
from rollout.cli.options.nodes import DetectOption, SelectionOptions
from rollout.cli.options.ssh import SshOptions
from rollout.cli.options.values import parsed_sources

if TYPE_CHECKING:
    from datetime import datetime

    from rollout.cli.stages.gather import Targets
    from rollout.model.cluster import Node
    from rollout.model.detection import Source
    from rollout.model.memory import Memory
    from rollout.model.policy import Pool
    from rollout.planning.status import NodeStatus
    from rollout.ports import ClusterApi

RunOption = Annotated[bool, Flag(OWN, "Show the running or interrupted rollout, instead of the nodes.")]
WatchOption = Annotated[
    bool,
    Flag(OWN, "Show the rollout again and again until it has ended. Ctrl-C ends the view alone.", short="-w"),
]
PendingOption = Annotated[bool, Flag(OWN, "Only nodes that wait for a reboot, or that a rollout is about.")]


def status(  # noqa: PLR0917 - typer's parameters; each is a group of options
    call: typer.Context,
    cluster: ClusterOptions,
    selection: SelectionOptions,
    ssh: SshOptions,
    command: DetectCommandOptions,
    lease: LeaseOptions,
    general: ListingOptions,
    run: RunOption = False,
    watch: WatchOption = False,
    pending: PendingOption = False,
    detect: DetectOption = None,
) -> None:
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
    from rollout.cli.terminal import say
    from rollout.planning.selector import parse_selector

    parse_selector(selection.selection.selector)
    own_rules, probe = pools.given(call), command.probe(parsed_sources(detect))
    if watch:
        _watch_run(connect_cluster(cluster), lease.lease_namespace, general)
        return
    if run:
        show_run(connect_cluster(cluster), lease.lease_namespace, general)
        return
    connections = connect(cluster, selection.selection, ssh)
    nodes = read_nodes(connections)
    targets = ask_hosts(nodes, connections, selection.selection, ssh, probe)
    memory, now = remembered(connections, lease.lease_namespace), connections.api.server_time()
    sentence, rollout = rollout_beside(connections.api, nodes, lease.lease_namespace)
    statuses = _statuses(nodes, targets, selection, own_rules, (memory, now), rollout)
    _show_nodes(statuses, general, (memory, now), only_pending=pending, asked=probe.sources)
    if sentence:
        say(f"{sentence}. See: rollout status --run")


def _statuses(
    nodes: "Sequence[Node]",
    targets: "Targets",
    selection: SelectionOptions,
    own_rules: "Sequence[Pool]",
    remembered: "tuple[Memory, datetime | None]",
    rollout: Mapping[str, str],
) -> "Sequence[NodeStatus]":
    """A row for each node that is meant, with how far a rollout has come with it."""
    from rollout.planning.eligibility import excluded_by_name
    from rollout.planning.status import node_statuses

    shown = [
        node for node in nodes if node.name in targets.selected and not excluded_by_name(node.name, selection.selection)
    ]
    rows = node_statuses(shown, targets.hosts, targets.observations, own_rules, *remembered, own_node=targets.own_node)
    return [replace(row, under_way=rollout[row.node]) if row.node in rollout else row for row in rows]


def _show_nodes(
    statuses: "Sequence[NodeStatus]",
    general: ListingOptions,
    remembered: "tuple[Memory, datetime | None]",
    *,
    only_pending: bool,
    asked: "Sequence[Source]",
) -> None:
    from rollout.cli.terminal import is_terminal, say, show, show_bytes, show_names
    from rollout.model.json_text import json_document
    from rollout.model.text import counted
    from rollout.report.status import memory_lines, status_text

    if not (general.is_document or general.as_names):
        memory, now = remembered
        text = status_text(
            statuses,
            width=general.width,
            only_pending=only_pending,
            wide=general.is_wide,
            signs=is_terminal(),
            asked=asked,
            remembered=tuple(memory_lines(memory, statuses, now)),
        )
        show(text)
        return
    rows = [row for row in statuses if row.is_pending or not only_pending]
    if general.as_names:
        show_names(row.node for row in rows)
    else:
        show_bytes(general.document(json_document(rows)))
    unknown = sum(not row.judged for row in statuses if row not in rows)
    if unknown:
        say(f"warning: of {counted(unknown, 'node')} it is not known whether a reboot is pending: rollout status")


def _watch_run(api: "ClusterApi", namespace: str, general: ListingOptions) -> None:
    from rollout.cli.stages.run_status import watch_run
    from rollout.errors import UsageError

    if general.output in (OutputFormat.YAML, OutputFormat.NAME):
        raise UsageError("--watch prints text, or JSON lines", hint="Drop -o, or use: -o json")
    watch_run(api, namespace, general)
