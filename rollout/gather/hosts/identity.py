"""Matches hosts to Nodes, and checks that a Node's own machine has answered.

An address may lead to another machine, so an answer counts only if its boot ID is in this Node's
`nodeInfo` alone. The machine ID there proves nothing: a kubelet in a container may report its
image's.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rollout.errors import InventoryError
from rollout.gather.inventory import Inventory, SshDefaults
from rollout.model.cluster import Node
from rollout.model.detection import Source
from rollout.model.host import (
    Host,
    HostFacts,
    HostObservation,
    ProbeFailure,
    ProbeFailureKind,
    is_address_or_name,
    normalize_address,
)
from rollout.model.node_marks import annotation_sign
from rollout.model.text import shortened

HOSTNAME_LABEL = "kubernetes.io/hostname"
_MOST_NAMES = 5
MACHINE_ID_FIX = (
    "Give the kubelet's container the host's /etc/machine-id, read-only, and restart the kubelet."
)
_ADDRESS_TYPES = ("InternalIP", "ExternalIP", "Hostname")


def match_hosts(
    nodes: Sequence[Node], inventory: Inventory | None, defaults: SshDefaults
) -> Mapping[str, Host]:
    """Return the hosts by Node name; an address may be empty without an inventory.

    An inventory's host matches by the Node's name, else address, else hostname label.
    `InventoryError` if two hosts match one Node, or one host two Nodes.
    """
    if inventory is None:
        return {node.name: _from_node(node, defaults) for node in nodes}
    names = {node.name for node in nodes}
    by_address = _owners(
        (node.name, normalize_address(address.address))
        for node in nodes
        for address in node.addresses
    )
    by_label = _owners((node.name, node.labels.get(HOSTNAME_LABEL, "")) for node in nodes)
    by_node: dict[str, Host] = {}
    for host in inventory.hosts:
        at_address = by_address.get(normalize_address(host.address))
        node = at_address or by_label.get(host.name)
        if host.name in names:
            node = host.name
        if node is None:
            continue
        if at_address not in (None, node):
            raise InventoryError(
                f"host {host.name} of the inventory has the address {host.address} of node"
                f" {at_address}",
                hint="Correct its ansible_host.",
            )
        if node in by_node:
            raise InventoryError(
                f"hosts {by_node[node].name} and {host.name} of the inventory are both node {node}",
                hint="Give each host its own address, or remove one of the two.",
            )
        by_node[node] = host
    return by_node


def _from_node(node: Node, defaults: SshDefaults) -> Host:
    return Host(
        name=node.name,
        address=_usable_address(node),
        port=defaults.port,
        user=defaults.user,
        key_file=defaults.key_file,
    )


def _usable_address(node: Node) -> str:
    for kind in _ADDRESS_TYPES:
        for address in node.addresses:
            if address.type == kind and is_address_or_name(address.address):
                return address.address
    return ""


def _owners(signs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Return the Node of each sign that no other has; `signs` are (node, sign) pairs."""
    by_sign = _names_by_sign(signs)
    return {sign: names[0] for sign, names in by_sign.items() if len(names) == 1}


def _names_by_sign(signs: Iterable[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    names_by_sign: defaultdict[str, set[str]] = defaultdict(set)
    for name, sign in signs:
        if sign:
            names_by_sign[sign].add(name)
    return {sign: tuple(sorted(names)) for sign, names in names_by_sign.items()}


def verify_identities(
    nodes: Sequence[Node], observations: Mapping[str, HostObservation]
) -> Mapping[str, HostObservation]:
    """Replace answers that may not be from the Node's own machine with failures.

    `nodes` must be all Nodes, because another one's machine may have answered.
    """
    by_name = {node.name: node for node in nodes}
    answered = {name: facts for name, facts in observations.items() if isinstance(facts, HostFacts)}
    nodes_by_reported_boot = _names_by_sign((node.name, node.boot_id) for node in nodes)
    nodes_by_boot = _names_by_sign((name, facts.boot_id) for name, facts in answered.items())
    ambiguous = {ambiguity.machine_id for ambiguity in ambiguous_machine_ids(nodes)}

    def verify(name: str, facts: HostFacts) -> HostObservation:
        node = by_name.get(name)
        if node is None or not node.boot_id:
            why = "its Node does not name its machine: nodeInfo has no boot ID"
            hint = f"See: kubectl get node {name} -o jsonpath={{.status.nodeInfo}}"
            return _missing_identity(facts, why, hint)
        others = nodes_by_reported_boot.get(facts.boot_id, ())
        is_unique = node.machine_id not in ambiguous
        trouble = _disagreement(node, facts, others, is_unique=is_unique)
        if trouble is not None:
            return trouble
        # If Nodes share a machine, nobody can say whose it is: none is touched.
        sharing = {name, *others, *nodes_by_boot.get(facts.boot_id, ())}
        if len(sharing) > 1:
            names = ", ".join(sorted(sharing))
            return _wrong_host(facts, f"several Nodes have the same machine: {names}")
        return with_node(facts, node)

    verified = {name: verify(name, facts) for name, facts in answered.items()}
    return {**observations, **verified}


def with_node(facts: HostFacts, node: Node) -> HostFacts:
    if Source.ANNOTATION not in facts.sources:
        return facts
    return replace(facts, signs=(*facts.signs, annotation_sign(node)))


def _disagreement(
    node: Node, facts: HostFacts, others: Sequence[str], *, is_unique: bool
) -> ProbeFailure | None:
    """Return why the facts are not of this Node's host and boot, or None.

    `others` also report this boot ID. `is_unique`: no other Node reports the Node's machine ID.
    """
    if not facts.machine_id:
        why = "the machine ID of the host cannot be read"
        return _missing_identity(facts, why, "/etc/machine-id must be readable for the SSH user.")
    if facts.boot_id == node.boot_id:
        return None
    if others or (is_unique and facts.machine_id != node.machine_id):
        whose = f"machine ID {facts.machine_id}, the Node has {node.machine_id}"
        if others:
            whose = f"it is {', '.join(others)}"
        return _wrong_host(facts, f"the host is another machine than this Node's: {whose}")
    return _missing_identity(
        facts,
        f"its kubelet has not reported since its last boot: boot ID {facts.boot_id}, the Node has"
        f" {node.boot_id}",
        "Wait until it has; else see systemctl status kubelet on the host, and kubectl describe"
        f" node {node.name}",
    )


def _wrong_host(facts: HostFacts, why: str) -> ProbeFailure:
    return ProbeFailure(
        facts.host,
        ProbeFailureKind.WRONG_HOST,
        f"{why} (at {facts.host.address})",
        "See where the Node's address, the inventory or ~/.ssh/config lead: kubectl get node -o"
        " wide, ssh -G HOST",
        summary=why,
    )


def _missing_identity(facts: HostFacts, why: str, hint: str) -> ProbeFailure:
    return ProbeFailure(facts.host, ProbeFailureKind.UNREPORTED, why, hint)


@dataclass(frozen=True, slots=True)
class AmbiguousMachineId:
    """A machine ID, perhaps empty, that several Nodes report."""

    machine_id: str
    nodes: tuple[str, ...]

    @property
    def cause(self) -> str:
        names = shortened(self.nodes, _MOST_NAMES)
        if self.machine_id:
            return (
                f"{names} report the same machine ID: their kubelets read that of an image, not the"
                " host's"
            )
        return f"{names}: nodeInfo has no machine ID, because the kubelet finds no /etc/machine-id"


def ambiguous_machine_ids(nodes: Iterable[Node]) -> Iterator[AmbiguousMachineId]:
    names: defaultdict[str, list[str]] = defaultdict(list)
    for node in nodes:
        names[node.machine_id].append(node.name)
    for machine_id, reporting in names.items():
        if len(reporting) > 1 or not machine_id:
            yield AmbiguousMachineId(machine_id, tuple(sorted(reporting)))
