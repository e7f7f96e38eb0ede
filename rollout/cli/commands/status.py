"""`rollout status`."""

from typing import Annotated

from rollout.cli.options.cluster import ClusterOptions, LeaseOptions
from rollout.cli.options.declaration import OWN, Flag
from rollout.cli.options.general import GeneralOptions
from rollout.cli.options.nodes import SelectionOptions
from rollout.cli.options.ssh import SshOptions

RunOption = Annotated[bool, Flag(OWN, "Show the rollout that is under way or was interrupted, instead of the nodes.")]


def status(
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
    from rollout.cli.gathering import ask_hosts, connect, read_nodes
    from rollout.cli.terminal import show, show_bytes, width
    from rollout.cli.unfinished import mention_run, show_run
    from rollout.planning.eligibility import excluded_by_name
    from rollout.planning.status import node_statuses
    from rollout.report.json_documents import statuses_document
    from rollout.report.tables import status_text

    connections = connect(cluster, selection.selection, ssh)
    if run:
        show_run(connections, lease.lease_namespace, as_json=general.as_json)
        return
    nodes = read_nodes(connections)
    targets = ask_hosts(nodes, connections, selection.selection, ssh)
    shown = [
        node for node in nodes if node.name in targets.selected and not excluded_by_name(node.name, selection.selection)
    ]
    statuses = node_statuses(shown, targets.hosts, targets.observations)
    if general.as_json:
        show_bytes(statuses_document(statuses))
    else:
        show(status_text(statuses, width=width()))
    mention_run(connections, nodes, lease.lease_namespace)
