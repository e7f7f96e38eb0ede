"""`rollout status`."""

from rollout.cli.options import ClusterOptions, GeneralOptions, SelectionOptions, SshOptions


def status(cluster: ClusterOptions, selection: SelectionOptions, ssh: SshOptions, general: GeneralOptions) -> None:
    """Show which nodes wait for a reboot, and what keeps the others.

    \b
    Examples:
      rollout status
      rollout status -l node-role.kubernetes.io/worker -o json
    """
    from rollout.cli.gathering import ask_hosts, connect, read_nodes
    from rollout.cli.terminal import show, show_bytes, width
    from rollout.planning.eligibility import excluded_by_name
    from rollout.planning.status import node_statuses
    from rollout.report.json_documents import statuses_document
    from rollout.report.tables import status_text

    connections = connect(cluster, selection.selection, ssh)
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
