"""The first stage of every command: the nodes or the whole cluster, what the hosts say, and what stands unfinished."""

import difflib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from rollout.adapters.own_pod import own_pod
from rollout.cli import wiring
from rollout.cli.log import stage
from rollout.cli.settings.schema import Ssh
from rollout.cli.stages.session import Gathered, Session, Targets
from rollout.cli.terminal import error_console, say, shown_meanwhile
from rollout.errors import ApiError, InputError
from rollout.execution.base.deadline import Deadline, has_answered, patiently
from rollout.execution.record.record import read_record
from rollout.execution.record.unfinished import Unfinished, assess, look
from rollout.gather.cluster import documents
from rollout.gather.cluster import snapshot as snapshot_reading
from rollout.gather.cluster.documents import read_slots
from rollout.gather.cluster.snapshot import Kept
from rollout.gather.hosts.identity import identified, match_hosts
from rollout.gather.hosts.polling import poll
from rollout.gather.hosts.probe_command import Probe
from rollout.gather.hosts.signs import annotated
from rollout.gather.inventory.reading import SshDefaults
from rollout.model.cluster import ClusterSnapshot, Node, Pod
from rollout.model.host import Host, HostObservation, ProbeFailure
from rollout.model.memory import Memory
from rollout.model.own_node import OwnNode, OwnPod
from rollout.model.policy import Selection
from rollout.model.text import counted, shortened
from rollout.planning.eligibility.candidates import excluded_by_name, located
from rollout.planning.eligibility.selector import parse_selector
from rollout.ports import ClusterApi

T = TypeVar("T")

_START_PATIENCE = 60.0
_SUGGESTIONS = 3
_OF_PATTERNS = frozenset("*?[]")


def gather(session: Session, kept: Kept | None = None) -> Gathered:
    """Gather everything that a plan is made of, of the selected nodes' hosts; into `kept` goes what the API said."""
    snapshot = read_cluster(session, kept)
    return Gathered(snapshot, ask_hosts(session, snapshot.nodes))


def read_cluster(session: Session, kept: Kept | None = None) -> ClusterSnapshot:
    """Read everything that planning needs of the cluster, with what is remembered."""
    with stage("read the cluster") as note, shown_meanwhile("reading the cluster"):
        snapshot = with_patience(lambda: snapshot_reading.read_snapshot(session.api, kept))
        for warning in snapshot.warnings:
            say(f"warning: {warning}")
        memory = read_memory(session)
        note(f"{counted(len(snapshot.nodes), 'node')}, {counted(len(snapshot.pods), 'pod')}")
        note(counted(len(snapshot.budgets), "disruption budget"))
    return replace(snapshot, memory=memory)


def read_memory(session: Session, *, quiet: bool = False) -> Memory:
    """Read what is remembered of earlier rollouts; warn of what is not understood, or not shown, unless `quiet`."""
    memory = with_patience(lambda: documents.read_memory(session.api, session.namespace))
    if memory.problem and not quiet:
        say(f"warning: {memory.problem}: no version is known to be held, and no node to have failed")
    return memory


def read_nodes(session: Session) -> tuple[Node, ...]:
    """Read the nodes alone."""
    with stage("read the nodes") as note, shown_meanwhile("reading the nodes"):
        nodes = with_patience(lambda: snapshot_reading.read_nodes(session.api))
        note(counted(len(nodes), "node"))
    return nodes


def find_unfinished(api: ClusterApi, namespace: str, *, deferred: bool = False) -> Unfinished | None:
    """Return what an interrupted rollout has left, or None; with the marks of nodes that were `deferred`, if wanted."""
    return with_patience(lambda: look(api, namespace, deferred=deferred))


def find_unfinished_among(session: Session, nodes: Sequence[Node]) -> Unfinished | None:
    """Return the same of nodes that were read already."""
    return assess(with_patience(lambda: read_record(session.api, session.namespace)), nodes)


def has_slots(api: ClusterApi, namespace: str) -> bool:
    """Whether a host holds a slot of FleetLock; not where this user may not see it."""
    try:
        return bool(with_patience(lambda: read_slots(api, namespace)).held)
    except ApiError:
        return False


def with_patience(action: Callable[[], T]) -> T:
    """Ask a server that answers, but not now, again for a while; one that is not there is told of at once."""
    reported = list[BaseException]()

    def notice(error: BaseException) -> None:
        if not reported:  # once, until it is back, whatever each request meets
            say(f"waiting for the API server: {error}")
        reported.append(error)

    return patiently(action, Deadline(wiring.system_clock(), _START_PATIENCE), notice, passing=has_answered)


def ask_hosts(session: Session, nodes: Sequence[Node], probe: Probe | None = None) -> Targets:
    """Choose nodes, find their hosts, and ask each host what it is up to, by another `probe` than usual if given."""
    selected, hosts = find_hosts(nodes, session.api, session.selection, session.settings.ssh)
    observations = _observed(session, nodes, hosts, probe or session.probe)
    return Targets(selected, hosts, observations, _own_node(session, nodes))


def find_hosts(
    nodes: Sequence[Node], api: ClusterApi, selection: Selection, ssh: Ssh
) -> tuple[tuple[str, ...], Mapping[str, Host]]:
    """Return the names that are chosen, before `--exclude`, and the hosts of those that are left after it."""
    selected = chosen(nodes, _matching(nodes, api, selection), selection)
    if useless := useless_exclusions(nodes, selection):
        say(f"warning: {useless}")
    if all(excluded_by_name(name, selection) for name in selected):
        say(f"warning: --exclude leaves none of the selected nodes: {shortened(selected)}")
    matched = _hosts(nodes, selected, ssh)
    questioned = {name: matched[name] for name in selected if name in matched and not excluded_by_name(name, selection)}
    return selected, wiring.as_ssh_config_says(questioned, ssh)


def ask_named(session: Session, nodes: Sequence[Node], requested: Container[str]) -> Targets:
    """Find the hosts of all nodes, and ask those that are named; no name is not all, but none."""
    names, ssh = tuple(node.name for node in nodes), session.settings.ssh
    hosts = wiring.as_ssh_config_says(_hosts(nodes, names, ssh), ssh)
    questioned = {name: host for name, host in hosts.items() if name in requested}
    observations = _observed(session, nodes, questioned, session.probe) if questioned else {}
    return Targets(names, hosts, observations, _own_node(session, nodes))


def _own_node(session: Session, nodes: Sequence[Node]) -> OwnNode | None:
    """Return the node under this process; a pod that should know it and does not is told so."""
    own = own_pod()
    if own is None:
        return None
    node = located(own, _pod(own, session.api), nodes)
    if node is None and own.node:
        say(f"warning: the node of this pod, {own.node}, is not in this cluster: no node is spared as its own")
    elif node is None and own.server and own.server in session.api.server:
        say(
            "warning: which node this pod is on is not known, so its node may be drained under it. Set "
            "ROLLOUT_NODE_NAME from the pod's field spec.nodeName"
        )
    return node


def _pod(own: OwnPod, api: ClusterApi) -> Pod | None:
    """Return this process's Pod, as far as it may be read."""
    try:
        return with_patience(lambda: snapshot_reading.read_pod(api, own.namespace, own.name)) if own.key else None
    except ApiError:
        return None


def choose(session: Session, nodes: Sequence[Node]) -> tuple[str, ...]:
    """Return the names of those that are meant, before `--exclude`; `InputError` where none is, or one is not there."""
    return chosen(nodes, _matching(nodes, session.api, session.selection), session.selection)


def _matching(nodes: Sequence[Node], api: ClusterApi, selection: Selection) -> Sequence[Node]:
    """Have the API server read the selector: it is the authority on what one means."""
    selector = selection.selector
    return with_patience(lambda: snapshot_reading.read_nodes(api, selector)) if selector else nodes


def _hosts(nodes: Sequence[Node], selected: Sequence[str], ssh: Ssh) -> Mapping[str, Host]:

    # the key stays with the shell: it is checked once there, and a host's own goes before it
    defaults = SshDefaults(user=ssh.user, port=ssh.port or 0, key_file=None)
    inventory = wiring.inventory(ssh, defaults)
    for warning in inventory.warnings if inventory else ():
        say(f"warning: {warning}")
    matched = match_hosts(nodes, inventory, defaults)
    if matched.hosts_without_node:
        names = [host.name for host in matched.hosts_without_node]
        say(f"warning: in the inventory, but not in the cluster: {shortened(names)}")
    chosen_names = frozenset(selected)
    hostless = [name for name in matched.nodes_without_host if name in chosen_names]
    if hostless:
        say(f"warning: no host is known for the Nodes {shortened(hostless)}")
    return matched.hosts


def _observed(
    session: Session, nodes: Sequence[Node], hosts: Mapping[str, Host], probe: Probe
) -> Mapping[str, HostObservation]:
    """Return what the hosts say, where they are the machines of their Nodes, and what stands on these."""
    from rollout.report.console import asking_progress

    ssh = session.settings.ssh
    with stage("ask the hosts") as note, asking_progress(error_console(), len(hosts)) as answered:
        observations = poll(
            hosts,
            session.shell,
            probe=probe,
            timeout=ssh.probe_timeout,
            concurrency=ssh.probe_concurrency,
            on_result=answered,
        )
        failures = Counter(item.kind for item in observations.values() if isinstance(item, ProbeFailure))
        note(counted(len(hosts), "host"))
        for kind, number in failures.items():
            note(f"{number} {kind}")
    return annotated(nodes, identified(nodes, observations))


def chosen(nodes: Sequence[Node], matching: Sequence[Node], selection: Selection) -> tuple[str, ...]:
    """Names that the selector (`matching`) and `--node` choose of all `nodes`, in their order, before `--exclude`."""
    _refuse_missing(nodes, selection.nodes)
    # a pattern speaks of nodes that may come, too
    _refuse_missing(nodes, (name for name in selection.exclude if not set(name) & _OF_PATTERNS))
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
    """Return what to warn of where an `--exclude` names no node, as after a slip; empty where each names one."""
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
    """Return the key of its first requirement; empty where it has none."""
    return next((requirement.key for requirement in parse_selector(selector).requirements), "")


def close_labels(key: str, nodes: Sequence[Node]) -> str:
    """Return what the nodes have of this label, or labels like it: the end of a warning, or a hint."""
    values = {node.labels[key] for node in nodes if key in node.labels}
    if values:
        return f"On the nodes, {key} is one of: {shortened(sorted(values))}"
    keys = sorted({label for node in nodes for label in node.labels})
    close = difflib.get_close_matches(key, keys, n=_SUGGESTIONS, cutoff=0.4)
    return f"No node has the label {key}; labels are: {', '.join(close) if close else shortened(keys)}"
