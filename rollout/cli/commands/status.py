"""`rollout status`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.options import pools
from rollout.cli.options.cluster import ClusterOptions, LeaseOptions
from rollout.cli.options.declaration import OWN, Flag
from rollout.cli.options.general import GeneralOptions
from rollout.cli.options.nodes import SelectionOptions
from rollout.cli.options.ssh import SshOptions

if TYPE_CHECKING:
    from rollout.cli.stages.gather import Connections
    from rollout.execution.record.unfinished import Unfinished
    from rollout.model.cluster import Node

RunOption = Annotated[bool, Flag(OWN, "Show the running or interrupted rollout, instead of the nodes.")]


def status(
    call: typer.Context,
    cluster: ClusterOptions,
    selection: SelectionOptions,
    ssh: SshOptions,
    lease: LeaseOptions,
    general: GeneralOptions,
    run: RunOption = False,
) -> None:
    """Show which nodes wait for a reboot, what keeps the others, and a rollout that is under way or was interrupted.

    \b
    Examples:
      rollout status
      rollout status -l node-role.kubernetes.io/worker -o json
    """
    from rollout.cli.stages.gather import ask_hosts, connect, read_nodes
    from rollout.cli.stages.remembering import remembered
    from rollout.cli.terminal import is_terminal, say, show, show_bytes
    from rollout.model.json_text import json_document
    from rollout.planning.eligibility import excluded_by_name
    from rollout.planning.status import node_statuses
    from rollout.report.columns import wrapped
    from rollout.report.memory import memory_lines
    from rollout.report.tables import status_text
    from rollout.report.unfinished import heading, under_way

    own_rules = pools.given(call)
    connections = connect(cluster, selection.selection, ssh)
    if run:
        _show_run(connections, lease.lease_namespace, as_json=general.as_json)
        return
    nodes = read_nodes(connections)
    targets = ask_hosts(nodes, connections, selection.selection, ssh)
    shown = [
        node for node in nodes if node.name in targets.selected and not excluded_by_name(node.name, selection.selection)
    ]
    memory, now = remembered(connections, lease.lease_namespace), connections.api.server_time()
    statuses = node_statuses(
        shown, targets.hosts, targets.observations, own_rules, memory, now, own_node=targets.own_node
    )
    unfinished = _unfinished(connections, nodes, lease.lease_namespace)
    if general.as_json:
        show_bytes(json_document(statuses))
    else:
        going_on = under_way(unfinished) if unfinished else {}
        text = status_text(statuses, width=general.width, under_way=going_on, wide=general.is_wide, signs=is_terminal())
        lines = (wrapped(line, general.width) for line in memory_lines(memory, statuses, now))
        show("\n".join((text, *lines)))
    if unfinished is not None:
        say(f"{heading(unfinished)}. See: rollout status --run")


def _show_run(connections: "Connections", namespace: str, *, as_json: bool) -> None:
    """The run with its nodes, and whether its process lives; `null` where there is none."""
    from rollout.cli.stages.gather import find_unfinished, is_holder_alive
    from rollout.cli.terminal import show, show_bytes
    from rollout.model.json_text import json_document
    from rollout.report.unfinished import run_document, run_text

    unfinished = find_unfinished(connections, namespace)
    renewed = unfinished is not None and is_holder_alive(connections, namespace)
    if as_json:
        show_bytes(json_document(run_document(unfinished, renewed=renewed)))
    else:
        show(run_text(unfinished, renewed=renewed))


def _unfinished(connections: "Connections", nodes: Sequence["Node"], namespace: str) -> "Unfinished | None":
    """The rollout that is beside these nodes; a user who may not see it is told nothing."""
    from rollout.errors import ApiError
    from rollout.execution.record.record import read_record
    from rollout.execution.record.unfinished import assess

    try:
        return assess(read_record(connections.api, namespace), nodes)
    except ApiError:
        return None
