from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from msgspec import Struct

from rollout.adapters.own_pod import read_own_pod
from rollout.adapters.ssh.config import NO_FILE, with_ssh_config
from rollout.cli import wiring
from rollout.cli.log import stage
from rollout.cli.settings.schema import Executor, SshSettings
from rollout.cli.stages.cluster import Connections, with_retries
from rollout.cli.stages.rollout_spec import RolloutSpec
from rollout.cli.stages.selection import SelectedNodes, select
from rollout.cli.terminal import error_console, say, warn
from rollout.errors import ApiError
from rollout.gather.cluster.snapshot import read_pod
from rollout.gather.hosts.identity import match_hosts, verify_identities
from rollout.gather.hosts.polling import poll
from rollout.gather.hosts.probe_command import Probe
from rollout.gather.inventory import Inventory, SshDefaults
from rollout.model.cluster import Node, Pod
from rollout.model.host import Host, HostObservation
from rollout.model.node_kind import why_unsupported
from rollout.model.own_node import OwnNode
from rollout.model.text import shortened
from rollout.planning.eligibility.candidates import locate_own_node
from rollout.ports import ClusterApi, HostExecutor


class Targets(Struct, frozen=True):
    selected: SelectedNodes
    hosts: Mapping[str, Host]
    observations: Mapping[str, HostObservation]
    # None outside of the cluster, or if unknown.
    own_node: OwnNode | None = None

    def among(self, nodes: Iterable[Node]) -> list[Node]:
        names = frozenset(self.selected.names)
        return [node for node in nodes if node.name in names]


def ask_hosts(
    connections: Connections, spec: RolloutSpec, nodes: Sequence[Node], probe: Probe | None = None
) -> Targets:
    selected = select(nodes, connections.api, spec.selection)
    hosts = find_hosts(nodes, selected.names, spec.settings.ssh)
    answers = _poll(hosts, connections.shell, spec.settings.ssh, probe or spec.probe)
    own_node = _find_own_node(connections.api, nodes)
    return Targets(selected, hosts, verify_identities(nodes, answers), own_node)


def ask_hosts_of(
    names: Container[str], connections: Connections, spec: RolloutSpec, nodes: Sequence[Node]
) -> Targets:
    """Select all nodes, but ask only the hosts of these `names`."""
    all_names = tuple(node.name for node in nodes)
    hosts = find_hosts(nodes, all_names, spec.settings.ssh)
    asked = {name: host for name, host in hosts.items() if name in names}
    answers = _poll(asked, connections.shell, spec.settings.ssh, spec.probe)
    own_node = _find_own_node(connections.api, nodes)
    selected = SelectedNodes(all_names, all_names)
    return Targets(selected, hosts, verify_identities(nodes, answers), own_node)


def _poll(
    hosts: Mapping[str, Host], shell: HostExecutor, ssh: SshSettings, probe: Probe
) -> Mapping[str, HostObservation]:
    from rollout.report.console import host_progress

    with stage("ask the hosts") as add_note, host_progress(error_console(), len(hosts)) as advance:
        answers = poll(
            hosts,
            shell,
            probe=probe,
            timeout=ssh.probe_timeout,
            concurrency=ssh.probe_concurrency,
            on_answer=advance,
        )
        add_note(f"{len(hosts)} hosts")
    return answers


def _find_own_node(api: ClusterApi, nodes: Sequence[Node]) -> OwnNode | None:
    """Warns if rollout may drain that node, which would end this process."""
    own_pod = read_own_pod()
    if own_pod is None:
        return None
    pod: Pod | None = None
    if own_pod.key:
        # The right to read this pod is optional.
        with suppress(ApiError):
            pod = with_retries(read_pod, api, own_pod.namespace, own_pod.name)
    own_node = locate_own_node(own_pod, pod, nodes)
    if own_node is not None:
        return own_node
    # A pod of another cluster runs on none of these nodes.
    is_in_this_cluster = own_pod.server == urlsplit(api.server).hostname
    if own_pod.node_variable:
        say(
            f"warning: the node of this pod, {own_pod.node_variable}, is not in this cluster, so"
            " rollout cannot avoid draining the node it runs on"
        )
    elif is_in_this_cluster:
        say(
            "warning: cannot tell which node this pod runs on, so rollout may drain its own node."
            " Set ROLLOUT_NODE_NAME from the pod's spec.nodeName field"
        )
    return None


def find_hosts(nodes: Sequence[Node], names: Sequence[str], ssh: SshSettings) -> Mapping[str, Host]:
    """Return hosts from the Ansible inventory or the Nodes' addresses.

    Warns of nodes without one, except Windows nodes and virtual nodes.
    """
    # The shell uses the settings' key if the inventory names none.
    defaults = SshDefaults(user=ssh.user, port=ssh.port or 0, key_file=None)
    inventory = wiring.read_ansible_inventory(ssh, defaults)
    if inventory is not None:
        warn(*inventory.warnings)
    matched = match_hosts(nodes, inventory, defaults)
    if inventory is not None:
        _warn_of_unmatched_hosts(inventory, matched)
    supported = {node.name for node in nodes if not why_unsupported(node)}
    supported_names = [name for name in names if name in supported]
    without_host = [name for name in supported_names if name not in matched]
    if without_host:
        say(f"warning: no host is known for the Nodes {shortened(without_host)}")
    hosts = {name: matched[name] for name in supported_names if name in matched}
    # Ansible's ssh reads ssh_config itself.
    config = NO_FILE if ssh.executor is Executor.ANSIBLE else ssh.config
    return with_ssh_config(hosts, config, say, from_inventory=inventory is not None)


def _warn_of_unmatched_hosts(inventory: Inventory, matched: Mapping[str, Host]) -> None:
    names = {host.name for host in matched.values()}
    unmatched = [host.name for host in inventory.hosts if host.name not in names]
    if unmatched:
        say(f"warning: in the inventory, but not in the cluster: {shortened(unmatched)}")
