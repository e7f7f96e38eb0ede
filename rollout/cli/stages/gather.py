"""The first stage of every command: the nodes or the whole cluster, what the hosts say, and what stands unfinished."""

import difflib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from rollout.cli import wiring
from rollout.cli.log import stage
from rollout.cli.settings.schema import Cluster, Settings, Ssh
from rollout.cli.terminal import error_console, say, shown_meanwhile
from rollout.errors import ApiError, InputError
from rollout.gather.hosts.probe_command import USUAL_PROBE, Probe
from rollout.model.cluster import ClusterSnapshot, Node, Pod
from rollout.model.host import Host, HostObservation, ProbeFailure
from rollout.model.memory import Memory
from rollout.model.own_node import OwnNode, OwnPod
from rollout.model.policy import Selection
from rollout.model.text import counted, shortened
from rollout.planning.eligibility import excluded_by_name, located
from rollout.planning.selector import parse_selector
from rollout.ports import ClusterApi, HostExecutor

if TYPE_CHECKING:
    from rollout.execution.record.unfinished import Unfinished

T = TypeVar("T")

_START_PATIENCE = 60.0
_SUGGESTIONS = 3
_OF_PATTERNS = frozenset("*?[]")


@dataclass(frozen=True, slots=True)
class Targets:
    """What a command works on. `selected` are names before `--exclude`; hosts and observations, by Node, are after.

    `own_node` is the node under this process, where it runs in a pod of this cluster.
    """

    selected: tuple[str, ...]
    hosts: Mapping[str, Host]
    observations: Mapping[str, HostObservation]
    own_node: OwnNode | None = None

    def number_of(self, selection: Selection) -> int:
        """The number of nodes that percentages are of."""
        return sum(1 for name in self.selected if not excluded_by_name(name, selection))


@dataclass(frozen=True, slots=True)
class Connections:
    """The adapters one command uses."""

    api: ClusterApi
    shell: HostExecutor


@dataclass(frozen=True, slots=True)
class Gathered:
    """All that a plan is made of, and by what it was read."""

    connections: Connections
    snapshot: ClusterSnapshot
    targets: Targets


def connect(settings: Settings, selection: Selection) -> Connections:
    """Make the adapters; what is wrong with the options is found before anything is asked."""
    parse_selector(selection.selector)
    return Connections(connect_cluster(settings.cluster), wiring.host_shell(settings.ssh))


def connect_cluster(cluster: Cluster) -> ClusterApi:
    """The cluster alone: what no host is asked for is there sooner."""
    with stage("connect") as note:
        api = wiring.cluster_api(cluster)
        note(api.server)
    return api


def gather(settings: Settings, selection: Selection, probe: Probe) -> Gathered:
    """Everything that a plan is made of, of the selected nodes' hosts, which are asked with this probe."""
    connections = connect(settings, selection)
    snapshot = read_cluster(connections, settings.lock.namespace)
    return Gathered(connections, snapshot, ask_hosts(snapshot.nodes, connections, selection, settings.ssh, probe))


def read_cluster(connections: Connections, lease_namespace: str) -> ClusterSnapshot:
    """Everything that planning needs of the cluster, with what is remembered in that namespace."""
    from rollout.gather.cluster.snapshot import read_snapshot

    with stage("read the cluster") as note, shown_meanwhile("reading the cluster"):
        snapshot = with_patience(lambda: read_snapshot(connections.api))
        for warning in snapshot.warnings:
            say(f"warning: {warning}")
        memory = read_memory(connections, lease_namespace)
        note(f"{counted(len(snapshot.nodes), 'node')}, {counted(len(snapshot.pods), 'pod')}")
        note(counted(len(snapshot.budgets), "disruption budget"))
    return replace(snapshot, memory=memory)


def read_memory(connections: Connections, lease_namespace: str, *, quiet: bool = False) -> Memory:
    """What is remembered of earlier rollouts; of what is not understood, or not shown, a warning, unless `quiet`."""
    from rollout.gather.cluster.memory import read_memory as read

    memory = with_patience(lambda: read(connections.api, lease_namespace))
    if memory.problem and not quiet:
        say(f"warning: {memory.problem}: no version is known to be held, and no node to have failed")
    return memory


def read_nodes(connections: Connections) -> tuple[Node, ...]:
    """The nodes alone."""
    from rollout.gather.cluster.snapshot import read_nodes as read

    with stage("read the nodes") as note, shown_meanwhile("reading the nodes"):
        nodes = with_patience(lambda: read(connections.api))
        note(counted(len(nodes), "node"))
    return nodes


def find_unfinished(api: ClusterApi, namespace: str, *, deferred: bool = False) -> "Unfinished | None":
    """What an interrupted rollout has left, or None; with the marks of nodes that were `deferred`, if wanted."""
    from rollout.execution.record.unfinished import look

    return with_patience(lambda: look(api, namespace, deferred=deferred))


def find_unfinished_among(connections: Connections, nodes: Sequence[Node], namespace: str) -> "Unfinished | None":
    """The same of nodes that were read already."""
    from rollout.execution.record.stored import read_record
    from rollout.execution.record.unfinished import assess

    return assess(with_patience(lambda: read_record(connections.api, namespace)), nodes)


def has_slots(api: ClusterApi, namespace: str) -> bool:
    """Whether a host holds a slot of FleetLock; not where this user may not see it."""
    from rollout.gather.cluster.slots import read_slots

    try:
        return bool(with_patience(lambda: read_slots(api, namespace)).slots.held)
    except ApiError:
        return False


def with_patience(action: Callable[[], T]) -> T:
    """A server that answers, but not now, is asked again for a while; one that is not there is told of at once."""
    from rollout.execution.base.deadline import Deadline, has_answered, patiently

    reported = set[str]()

    def notice(error: BaseException) -> None:
        if str(error) not in reported:
            reported.add(str(error))
            say(f"waiting for the API server: {error}")

    return patiently(action, Deadline(wiring.system_clock(), _START_PATIENCE), notice, passing=has_answered)


def ask_hosts(
    nodes: Sequence[Node], connections: Connections, selection: Selection, ssh: Ssh, probe: Probe = USUAL_PROBE
) -> Targets:
    """Choose nodes, find their hosts, and ask each host what it is up to."""
    selected, hosts = find_hosts(nodes, connections.api, selection, ssh)
    observations = _observed(nodes, hosts, connections.shell, ssh, probe)
    return Targets(selected, hosts, observations, _own_node(nodes, connections))


def find_hosts(
    nodes: Sequence[Node], api: ClusterApi, selection: Selection, ssh: Ssh
) -> tuple[tuple[str, ...], Mapping[str, Host]]:
    """The names that are chosen, before `--exclude`, and the hosts of those that are left after it."""
    selected = chosen(nodes, _matching(nodes, api, selection), selection)
    if useless := useless_exclusions(nodes, selection):
        say(f"warning: {useless}")
    if all(excluded_by_name(name, selection) for name in selected):
        say(f"warning: --exclude leaves none of the selected nodes: {shortened(selected)}")
    matched = _hosts(nodes, selected, ssh)
    questioned = {name: matched[name] for name in selected if name in matched and not excluded_by_name(name, selection)}
    return selected, wiring.as_ssh_config_says(questioned, ssh)


def ask_named(
    nodes: Sequence[Node],
    requested: Container[str],
    connections: Connections,
    ssh: Ssh,
    probe: Probe = USUAL_PROBE,
) -> Targets:
    """Find the hosts of all nodes, and ask those that are named; no name is not all, but none."""
    names = tuple(node.name for node in nodes)
    hosts = wiring.as_ssh_config_says(_hosts(nodes, names, ssh), ssh)
    questioned = {name: host for name, host in hosts.items() if name in requested}
    observations = _observed(nodes, questioned, connections.shell, ssh, probe) if questioned else {}
    return Targets(names, hosts, observations, _own_node(nodes, connections))


def _own_node(nodes: Sequence[Node], connections: Connections) -> OwnNode | None:
    """The node under this process; a pod that should know it and does not is told so."""
    own = wiring.own_pod()
    if own is None:
        return None
    node = located(own, _pod(own, connections.api), nodes)
    if node is None and own.node:
        say(f"warning: the node of this pod, {own.node}, is not in this cluster: no node is spared as its own")
    elif node is None and own.server and own.server in connections.api.server:
        say(
            "warning: which node this pod is on is not known, so its node may be drained under it. Set "
            "ROLLOUT_NODE_NAME from the pod's field spec.nodeName"
        )
    return node


def _pod(own: OwnPod, api: ClusterApi) -> Pod | None:
    """This process's Pod, as far as it may be read."""
    from rollout.gather.cluster.snapshot import read_pod

    try:
        return with_patience(lambda: read_pod(api, own.namespace, own.name)) if own.key else None
    except ApiError:
        return None


def choose(nodes: Sequence[Node], connections: Connections, selection: Selection) -> tuple[str, ...]:
    """The names of those that are meant, before `--exclude`; `InputError` where none is, or one does not exist."""
    return chosen(nodes, _matching(nodes, connections.api, selection), selection)


def _matching(nodes: Sequence[Node], api: ClusterApi, selection: Selection) -> Sequence[Node]:
    """The API server reads the selector: it is the authority on what one means."""
    from rollout.gather.cluster.snapshot import read_nodes as read

    selector = selection.selector
    return with_patience(lambda: read(api, selector)) if selector else nodes


def _hosts(nodes: Sequence[Node], selected: Sequence[str], ssh: Ssh) -> Mapping[str, Host]:
    from rollout.gather.hosts.matching import SshDefaults, match_hosts

    # the key stays with the shell: it is checked once there, and a host's own goes before it
    defaults = SshDefaults(user=ssh.user, port=ssh.port or 0, key_file=None)
    inventory = wiring.inventory(ssh, defaults)
    for warning in inventory.warnings if inventory else ():
        say(f"warning: {warning}")
    matched = match_hosts(nodes, inventory, defaults)
    if matched.hosts_without_node:
        names = [host.name for host in matched.hosts_without_node]
        say(f"warning: in the inventory, but not in the cluster: {shortened(names)}")
    hostless = [name for name in matched.nodes_without_host if name in set(selected)]
    if hostless:
        say(f"warning: no host is known for the Nodes {shortened(hostless)}")
    return matched.hosts


def _observed(
    nodes: Sequence[Node], hosts: Mapping[str, Host], shell: HostExecutor, ssh: Ssh, probe: Probe
) -> Mapping[str, HostObservation]:
    """What the hosts say, where they are the machines of their Nodes; and what stands on these, where asked for."""
    from rollout.gather.hosts.identity import identified
    from rollout.gather.hosts.signs import annotated

    return annotated(nodes, identified(nodes, _poll(hosts, shell, ssh, probe)))


def _poll(hosts: Mapping[str, Host], shell: HostExecutor, ssh: Ssh, probe: Probe) -> Mapping[str, HostObservation]:
    from rollout.gather.hosts.polling import poll
    from rollout.report.console import asking_progress

    wiring.unlock(shell, hosts)
    with stage("ask the hosts") as note, asking_progress(error_console(), len(hosts)) as answered:
        observations = poll(
            hosts,
            shell,
            probe=probe,
            timeout=ssh.probe_timeout,
            concurrency=ssh.probe_concurrency,
            on_result=answered,
        )
        failures = Counter(item.kind for item in observations.values() if isinstance(item, ProbeFailure))
        note(counted(len(hosts), "host"))
        for kind, number in failures.items():
            note(f"{number} {kind}")
    return observations


def chosen(nodes: Sequence[Node], matching: Sequence[Node], selection: Selection) -> tuple[str, ...]:
    """Names that the selector (`matching`) and `--node` choose of all `nodes`, in their order, before `--exclude`."""
    _refuse_missing(nodes, selection.nodes)
    if not matching:
        raise _nothing_matches(nodes, selection.selector)
    requested = set(selection.nodes)
    names = tuple(node.name for node in matching if not requested or node.name in requested)
    if not names:
        raise InputError(
            f"none of the nodes named by --node has the labels {selection.selector!r}",
            hint="Drop --node or --selector.",
        )
    return names


def useless_exclusions(nodes: Sequence[Node], selection: Selection) -> str:
    """What to warn of where an `--exclude` names no node, as after a slip of the pen; empty where each names one."""
    useless = [
        pattern
        for pattern in selection.exclude
        if not any(excluded_by_name(node.name, replace(selection, exclude=(pattern,))) for node in nodes)
    ]
    return f"--exclude names no node of the cluster: {shortened(useless)}" if useless else ""


def _refuse_missing(nodes: Sequence[Node], requested: Iterable[str]) -> None:
    present = {node.name for node in nodes}
    missing = [name for name in requested if name not in present]
    if missing:
        raise InputError(f"there is no node {shortened(missing)}", hint=close_names(missing[0], nodes))


def close_names(name: str, nodes: Sequence[Node]) -> str:
    """Nodes that go by this name or address elsewhere, or by one like it; or that no pattern is taken here."""
    if set(name) & _OF_PATTERNS:
        return "Patterns are for --exclude alone. Write whole names, or choose by labels: --selector."
    present = [node.name for node in nodes]
    host = name.lower().partition(".")[0]
    alike = [node.name for node in nodes if host == node.name.partition(".")[0] or name in _addresses(node)]
    close = alike[:_SUGGESTIONS] or difflib.get_close_matches(name, present, n=_SUGGESTIONS)
    return f"Similar: {', '.join(close)}" if close else f"The cluster has {shortened(present)}"


def _addresses(node: Node) -> Iterable[str]:
    return (address.address for address in node.addresses)


def _nothing_matches(nodes: Sequence[Node], selector: str) -> InputError:
    if not nodes:
        return InputError("the cluster has no nodes", hint="Is this the right context? See --kubeconfig and --context.")
    return InputError(f"no node matches the selector {selector!r}", hint=close_labels(first_label(selector), nodes))


def first_label(selector: str) -> str:
    """The key of its first requirement; empty where it has none."""
    return next((requirement.key for requirement in parse_selector(selector).requirements), "")


def close_labels(key: str, nodes: Sequence[Node]) -> str:
    """What the nodes have of this label, or labels like it: the end of a warning, or a hint."""
    values = {node.labels[key] for node in nodes if key in node.labels}
    if values:
        return f"On the nodes, {key} is one of: {shortened(sorted(values))}"
    keys = sorted({label for node in nodes for label in node.labels})
    close = difflib.get_close_matches(key, keys, n=_SUGGESTIONS, cutoff=0.4)
    return f"No node has the label {key}; labels are: {', '.join(close) if close else shortened(keys)}"
