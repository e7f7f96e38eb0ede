"""The first stage of every command: its session, the nodes or the whole cluster, what hosts say, what is unfinished."""

import difflib
import secrets
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from rollout.adapters.evidence_files import SignedDocument, read_documents, why_not_signed
from rollout.adapters.own_pod import own_pod
from rollout.adapters.ssh.config import NO_FILE, with_ssh_config
from rollout.cli import wiring
from rollout.cli.log import stage
from rollout.cli.settings.reading import Given
from rollout.cli.settings.rules import selection_of
from rollout.cli.settings.schema import Executor, Settings, SshSettings
from rollout.cli.stages.observers import RepeatFilter
from rollout.cli.terminal import error_console, say, shown_meanwhile, warn
from rollout.errors import ApiError, InputError, UsageError
from rollout.execution.base.deadline import Deadline, has_answered, patiently
from rollout.execution.gates import GatePorts
from rollout.execution.lease import LeaseWatch
from rollout.execution.record.memory import change_memory
from rollout.execution.record.record import read_record
from rollout.execution.record.unfinished import Unfinished, assess, look
from rollout.execution.rollout.ledger import Inheritance
from rollout.gather.cluster import documents
from rollout.gather.cluster import snapshot as snapshot_reading
from rollout.gather.hosts.identity import identified, match_hosts
from rollout.gather.hosts.polling import poll
from rollout.gather.hosts.probe_command import Probe
from rollout.gather.inventory import SshDefaults
from rollout.model.addresses import same_form
from rollout.model.cluster import ClusterSnapshot, Node, Pod
from rollout.model.evidence import Evidence, EvidenceRules
from rollout.model.host import Host, HostObservation
from rollout.model.memory import MOST_VERSIONS, NO_MEMORY, Memory
from rollout.model.node_kind import why_unsupported
from rollout.model.own_node import OwnNode
from rollout.model.plan import ExclusionReason, RolloutPlan
from rollout.model.policy import Policy, Selection
from rollout.model.selectors import parse_selector
from rollout.model.text import shortened
from rollout.planning.eligibility.candidates import excluded_by_name, located
from rollout.planning.eligibility.evidence import Proven, read_evidence, why_refused
from rollout.ports import ClusterApi, HostExecutor

if TYPE_CHECKING:
    from rollout.report.metrics import Metrics

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_START_PATIENCE = 60.0
_SUGGESTIONS = 3
_OF_PATTERNS = frozenset("*?[]")


@dataclass(frozen=True, slots=True)
class Session:
    """The settings of a command, what they mean, and the connections; made once, and handed down.

    `selection` and `policy` are what the settings say, or the `saved` plan, or the rollout that is
    gone on with; that plan's file is `saved_in`. `metrics` measure what is done; `news` is what
    notifications told before; `watch` is what was seen of the lock before there was a plan, and
    `force_unlock` the run whose Lease is not waited for. `unattended`: nobody watches, or has
    decided to try failed nodes again. `proven` is what another cluster has proved of versions, None
    where it need not. `process` is a word that no other process has.
    """

    settings: Given
    selection: Selection
    policy: Policy
    api: ClusterApi
    shell: HostExecutor
    saved: RolloutPlan | None = None
    saved_in: str = ""
    gates: GatePorts | None = None
    metrics: "Metrics | None" = None
    news: RepeatFilter | None = None
    watch: LeaseWatch | None = None
    unattended: bool = False
    proven: Proven | None = None
    force_unlock: str = ""
    process: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def namespace(self) -> str:
        """Where lock, record and memory stand."""
        return self.settings.lock.namespace

    @property
    def as_json(self) -> bool:
        """Whether programs read what is printed."""
        return self.settings.output.as_json

    @property
    def width(self) -> int | None:
        """Columns that text may take; None: no limit."""
        return self.settings.output.width

    @property
    def probe(self) -> Probe:
        """What each host is asked."""
        return Probe(self.policy.detect, self.settings.detect.command)

    @property
    def place(self) -> str:
        """Which cluster: what the operator calls it, with its address."""
        name = self.settings.cluster.name or wiring.context_of(self.settings)
        return f"{name} ({self.api.server})" if name else self.api.server


def connect(settings: Given, policy: Policy | None = None) -> Session:
    """Make the adapters."""
    api = wiring.cluster_api(settings)
    return Session(
        settings, selection_of(settings), policy or Policy(), api, wiring.host_shell(settings.ssh)
    )


@dataclass(frozen=True, slots=True)
class Targets:
    """What a command works on. `selected` are names before `--exclude`; `meant`, hosts and observations are after.

    `own_node` is the node under this process, where it runs in a pod of this cluster.
    """

    selected: tuple[str, ...]
    meant: tuple[str, ...]
    hosts: Mapping[str, Host]
    observations: Mapping[str, HostObservation]
    own_node: OwnNode | None = None

    def among(self, nodes: Iterable[Node]) -> list[Node]:
        """Return those of these nodes that are meant."""
        names = frozenset(self.meant)
        return [node for node in nodes if node.name in names]


@dataclass(frozen=True, slots=True)
class Run:
    """A plan, and all it takes to run it.

    `selected` is the number of nodes that percentages are of.
    `inherited` is what an earlier process has left of it, None for a new run.
    """

    session: Session
    plan: RolloutPlan
    targets: Targets
    selected: int
    inherited: Inheritance | None = None

    @property
    def hosts(self) -> Mapping[str, Host]:
        """The planned nodes' hosts."""
        return {node.name: self.targets.hosts[node.name] for node in self.plan.nodes}

    @property
    def deferred(self) -> bool:
        """Whether the node under this process is left for a run from elsewhere, and to be marked so."""
        return any(left.reason is ExclusionReason.DEFERRED for left in self.plan.excluded)


def read_cluster(
    session: Session, kept: snapshot_reading.CachedPages | None = None, *, warns: bool = True
) -> ClusterSnapshot:
    """Read everything that planning needs of the cluster, including the memory; `warns` if that cannot be read."""
    with stage("read the cluster") as note, shown_meanwhile("reading the cluster"):
        snapshot = with_patience(snapshot_reading.read_snapshot, session.api, kept)
        warn(*snapshot.warnings)
        memory = read_memory(session, warns=warns)
        note(
            f"{len(snapshot.nodes)} nodes, {len(snapshot.pods)} pods, {len(snapshot.budgets)}"
            " disruption budgets"
        )
    return replace(snapshot, memory=memory)


def read_memory(session: Session, *, warns: bool = False) -> Memory:
    """Read what is remembered of earlier rollouts, and, if wanted, warn of what is not understood, or not shown."""
    memory = with_patience(documents.read_memory, session.api, session.namespace)
    if memory.problem and warns:
        say(
            f"warning: {memory.problem}: which versions are held, and whether nodes are paused, is"
            " not known"
        )
    return memory


def read_nodes(api: ClusterApi) -> tuple[Node, ...]:
    """Read the nodes alone."""
    with stage("read the nodes") as note, shown_meanwhile("reading the nodes"):
        nodes = with_patience(snapshot_reading.read_nodes, api)
        note(f"{len(nodes)} nodes")
    return nodes


def find_unfinished(session: Session, *, deferred: bool = False) -> Unfinished | None:
    """Return what an interrupted rollout has left, or None; with the marks of nodes that were `deferred`, if wanted."""
    return with_patience(lambda: look(session.api, session.namespace, deferred=deferred))


def find_unfinished_among(session: Session, nodes: Sequence[Node]) -> Unfinished | None:
    """Return the same of nodes that were read already."""
    return assess(with_patience(read_record, session.api, session.namespace), nodes)


def with_patience(action: Callable[[*Ts], T], *given: *Ts) -> T:
    """Ask a server that answers, but not now, again for a while; one that is not there is told of at once."""
    reported = list[BaseException]()

    def notice(error: BaseException) -> None:
        if not reported:  # once, until it is back, whatever each request meets
            say(f"waiting for the API server: {error}")
        reported.append(error)

    return patiently(
        lambda: action(*given),
        Deadline(wiring.system_clock(), _START_PATIENCE),
        notice,
        passing=has_answered,
    )


def ask_hosts(
    session: Session,
    nodes: Sequence[Node],
    probe: Probe | None = None,
    named: Container[str] | None = None,
) -> Targets:
    """Choose nodes, find their hosts, and ask each host what it is up to, by another `probe` than usual if given.

    With `named` all nodes are chosen, and the hosts of those alone are asked, which may be none.
    """
    from rollout.report.console import asking_progress

    selected = meant = tuple(node.name for node in nodes)
    if named is None:
        selected, meant = choose(nodes, session.api, session.selection)
    hosts = find_hosts(nodes, meant, session.settings.ssh)
    ssh = session.settings.ssh
    asked = {name: host for name, host in hosts.items() if named is None or name in named}
    with stage("ask the hosts") as note, asking_progress(error_console(), len(asked)) as answered:
        answers = poll(
            asked,
            session.shell,
            probe=probe or session.probe,
            timeout=ssh.probe_timeout,
            concurrency=ssh.probe_concurrency,
            on_answer=answered,
        )
        note(f"{len(asked)} hosts")
    # what they say counts where they are the machines of their Nodes
    return Targets(selected, meant, hosts, identified(nodes, answers), _own_node(session, nodes))


def _own_node(session: Session, nodes: Sequence[Node]) -> OwnNode | None:
    """Return the node under this process; a pod that should know it and does not is told so."""
    own = own_pod()
    if own is None:
        return None
    pod: Pod | None = None
    if own.key:
        # as far as it may be read
        with suppress(ApiError):
            pod = with_patience(snapshot_reading.read_pod, session.api, own.namespace, own.name)
    node = located(own, pod, nodes)
    if node is None and own.node:
        say(
            f"warning: the node of this pod, {own.node}, is not in this cluster: no node is spared"
            " as its own"
        )
    elif node is None and own.server and own.server in session.api.server:
        say(
            "warning: which node this pod is on is not known, so its node may be drained under it."
            " Set ROLLOUT_NODE_NAME from the pod's field spec.nodeName"
        )
    return node


def choose(
    nodes: Sequence[Node], api: ClusterApi, selection: Selection
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names that are chosen, and those that are left of them after `--exclude`.

    `InputError` where none is chosen, or one is not there. The API server reads the selector: it is
    the authority.
    """
    selector = selection.selector
    matching = with_patience(snapshot_reading.read_nodes, api, selector) if selector else nodes
    selected = chosen(nodes, matching, selection)
    for pattern in selection.exclude:
        if not any(
            excluded_by_name(node.name, replace(selection, exclude=(pattern,))) for node in nodes
        ):
            say(f"warning: --exclude names no node of the cluster: {pattern}")
    meant = tuple(name for name in selected if not excluded_by_name(name, selection))
    if not meant:
        say(f"warning: --exclude leaves none of the selected nodes: {shortened(selected)}")
    return selected, meant


def find_hosts(nodes: Sequence[Node], names: Sequence[str], ssh: SshSettings) -> Mapping[str, Host]:
    """Return the known hosts of these Nodes. Windows nodes and virtual nodes have none."""
    supported = {node.name for node in nodes if not why_unsupported(node)}
    names = [name for name in names if name in supported]
    # the key stays with the shell: it is checked once there, and a host's own goes before it
    defaults = SshDefaults(user=ssh.user, port=ssh.port or 0, key_file=None)
    inventory = wiring.inventory(ssh, defaults)
    warn(*(inventory.warnings if inventory else ()))
    matched = match_hosts(nodes, inventory, defaults)
    known = {host.name for host in matched.values()}
    if inventory and (
        strangers := [host.name for host in inventory.hosts if host.name not in known]
    ):
        say(f"warning: in the inventory, but not in the cluster: {shortened(strangers)}")
    if hostless := [name for name in names if name not in matched]:
        say(f"warning: no host is known for the Nodes {shortened(hostless)}")
    found = {name: matched[name] for name in names if name in matched}
    # Ansible's ssh follows it by itself; what is said of hosts meanwhile is what holds without one
    return with_ssh_config(found, NO_FILE if ssh.executor is Executor.ANSIBLE else ssh.config, say)


def chosen(
    nodes: Sequence[Node], matching: Sequence[Node], selection: Selection
) -> tuple[str, ...]:
    """Names that the selector (`matching`) and `--node` choose of all `nodes`, in their order, before `--exclude`."""
    present = {node.name for node in nodes}
    # a pattern speaks of nodes that may come, too
    named = (
        *selection.nodes,
        *(name for name in selection.exclude if not set(name) & _OF_PATTERNS),
    )
    if missing := [name for name in named if name not in present]:
        raise InputError(
            f"there is no node {shortened(missing)}", hint=close_names(missing[0], nodes)
        )
    if not matching:
        if not nodes:
            hint = "Is this the right context? See --kubeconfig and --context."
            raise InputError("the cluster has no nodes", hint=hint)
        hint = close_labels(selection.selector, nodes)
        raise InputError(f"no node matches the selector {selection.selector!r}", hint=hint)
    requested = set(selection.nodes)
    names = tuple(node.name for node in matching if not requested or node.name in requested)
    if not names:
        raise InputError(
            f"none of the nodes named by --node has the labels {selection.selector!r}",
            hint="Drop --node or --selector.",
        )
    return names


def close_names(name: str, nodes: Sequence[Node]) -> str:
    """Nodes that go by this name or address elsewhere, or by one like it; or that no pattern is taken here."""
    if set(name) & _OF_PATTERNS:
        return (
            "Patterns are for --exclude alone. Write whole names, or choose by labels: --selector."
        )
    present = [node.name for node in nodes]
    host = name.lower().partition(".")[0]
    addresses = {
        node.name: {same_form(address.address) for address in node.addresses} for node in nodes
    }
    alike = [
        known
        for known in present
        if host == known.partition(".")[0] or same_form(name) in addresses[known]
    ]
    close = alike[:_SUGGESTIONS] or difflib.get_close_matches(name, present, n=_SUGGESTIONS)
    return f"Similar: {', '.join(close)}" if close else f"The cluster has {shortened(present)}"


def close_labels(selector: str, nodes: Sequence[Node]) -> str:
    """Return what the nodes have of this label, or of a selector's first, or labels like it."""
    key = next((requirement.key for requirement in parse_selector(selector).requirements), "")
    values = {node.labels[key] for node in nodes if key in node.labels}
    if values:
        return f"On the nodes, {key} is one of: {shortened(sorted(values))}"
    keys = sorted({label for node in nodes for label in node.labels})
    close = difflib.get_close_matches(key, keys, n=_SUGGESTIONS, cutoff=0.4)
    return (
        f"No node has the label {key}; labels are: {', '.join(close) if close else shortened(keys)}"
    )


def proven_elsewhere(session: Session, *, remembers: bool = False) -> Proven | None:
    """Return what counts of the evidence; None where none is required. `ApiError` while the API server is away.

    With `remembers` the latest of each version is remembered, so that an older one does not count
    again: where that cannot be written, none counts.
    """
    settings = session.settings
    api = session.api
    namespace = session.namespace
    if not settings.evidence.source:
        return None
    rules = evidence_rules(settings)
    memory = read_memory(session)
    counted = list[Evidence]()
    problems = list[str]()
    for signed in read_documents(settings.evidence.source, api, namespace):
        try:
            counted.append(_counting(signed, session, rules, memory.evidence))
        except ValueError as error:
            problems.append(f"evidence {signed.origin}: {error}")
    # of each version the latest
    documents = {item.version: item for item in sorted(counted, key=lambda item: item.made_at)}
    fresh = {version: document.made_at for version, document in documents.items()}
    if remembers and not fresh.items() <= memory.evidence.items():

        def noted(before: Memory) -> Memory:
            # the times of the latest documents alone
            times = sorted({**before.evidence, **fresh}.items(), key=lambda item: item[1])
            return replace(before, evidence=dict(times[-MOST_VERSIONS:]))

        try:
            change_memory(api, namespace, noted)
        except ApiError as error:
            return Proven(rules, {}, (*problems, f"evidence cannot be remembered: {error.message}"))
    return Proven(rules, documents, tuple(problems))


def evidence_rules(settings: Settings) -> EvidenceRules:
    """Return what is required; `UsageError` where that cannot be told."""
    asked = settings.evidence
    if not asked.cluster or asked.allowed_signers is None:
        hint = (
            "evidence.cluster names the cluster that proves, evidence.allowed-signers the file of"
            " its SSH key."
        )
        raise UsageError("--require-evidence does not say whose", hint=hint)
    return EvidenceRules(asked.cluster, asked.nodes, asked.hours, asked.max_age)


def _counting(
    signed: SignedDocument, session: Session, rules: EvidenceRules, seen: Mapping[str, str]
) -> Evidence:
    """Return the document, where nothing is wrong with it; else `ValueError`."""
    signers = session.settings.evidence.allowed_signers
    api = session.api
    if why := signed.problem or why_not_signed(signed, signers or Path(), rules.cluster):
        raise ValueError(why)
    document = read_evidence(signed.content)
    if why := why_refused(
        document,
        rules,
        own=snapshot_reading.read_identity(api).uid,
        seen=seen,
        now=api.server_time(),
    ):
        raise ValueError(why)
    return document


def seen_before(session: Session) -> tuple[Memory, Proven | None]:
    """Return what is remembered, and what counts of the evidence, for who only looks: nothing of what is not shown."""
    memory: Memory = NO_MEMORY
    proven: Proven | None = None
    with suppress(ApiError):
        memory = read_memory(session, warns=True)
    with suppress(ApiError):
        proven = proven_elsewhere(session)
    return memory, proven
