"""Matches hosts to Nodes, and checks whose machine has answered.

An address may lead to another machine, so an answer counts only if this Node alone reports the boot
ID. A machine ID proves nothing: a kubelet in a container may report its image's.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

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
    """Return hosts by Node. Without an inventory, an address may be empty.

    A host of the inventory matches by the Node's name, else by address, else by hostname label.
    Raises `InventoryError` for ambiguous matches.
    """
    if inventory is None:
        return {node.name: _host_from_node(node, defaults) for node in nodes}
    names = {node.name for node in nodes}
    by_address = _nodes_by_unique_value(
        (node.name, normalize_address(address.address))
        for node in nodes
        for address in node.addresses
    )
    by_label = _nodes_by_unique_value(
        (node.name, node.labels.get(HOSTNAME_LABEL, "")) for node in nodes
    )
    by_node: dict[str, Host] = {}
    for host in inventory.hosts:
        node_at_address = by_address.get(normalize_address(host.address))
        node: str | None = host.name
        if host.name not in names:
            node = node_at_address or by_label.get(host.name)
        if node is None:
            # Hosts outside the cluster may be in it.
            continue
        if node_at_address is not None and node_at_address != node:
            raise InventoryError(
                f"host {host.name} of the inventory has the address {host.address} of node"
                f" {node_at_address}",
                hint="Correct its ansible_host.",
            )
        if node in by_node:
            raise InventoryError(
                f"hosts {by_node[node].name} and {host.name} of the inventory are both node {node}",
                hint="Give each host its own address, or remove one of the two.",
            )
        by_node[node] = host
    return by_node


def _host_from_node(node: Node, defaults: SshDefaults) -> Host:
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


def _nodes_by_unique_value(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    by_value = _nodes_by_value(pairs)
    return {value: names[0] for value, names in by_value.items() if len(names) == 1}


def _nodes_by_value(pairs: Iterable[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    nodes_by_value: defaultdict[str, set[str]] = defaultdict(set)
    for name, value in pairs:
        if value:
            nodes_by_value[value].add(name)
    return {value: tuple(sorted(names)) for value, names in nodes_by_value.items()}


def verify_identities(
    nodes: Sequence[Node], observations: Mapping[str, HostObservation]
) -> Mapping[str, HostObservation]:
    """Replace answers that may be of another machine by failures.

    `nodes` must be all Nodes, because another's machine may have answered.
    """
    by_name = {node.name: node for node in nodes}
    answered = {name: facts for name, facts in observations.items() if isinstance(facts, HostFacts)}
    nodes_by_reported_boot = _nodes_by_value((node.name, node.boot_id) for node in nodes)
    nodes_by_host_boot = _nodes_by_value((name, facts.boot_id) for name, facts in answered.items())
    ambiguous = {ambiguity.machine_id for ambiguity in ambiguous_machine_ids(nodes)}

    def verify(name: str, facts: HostFacts) -> HostObservation:
        node = by_name.get(name)
        if node is None or not node.boot_id:
            why = "its Node does not identify its machine: nodeInfo has no boot ID"
            hint = f"See: kubectl get node {name} -o jsonpath={{.status.nodeInfo}}"
            return _unreported_failure(facts, why, hint)
        nodes_of_boot = nodes_by_reported_boot.get(facts.boot_id, ())
        is_unique = node.machine_id not in ambiguous
        failure = _why_not_its_machine(node, facts, nodes_of_boot, is_unique=is_unique)
        if failure is not None:
            return failure
        # If Nodes share a machine, touch none.
        nodes_of_machine = {name, *nodes_of_boot, *nodes_by_host_boot.get(facts.boot_id, ())}
        if len(nodes_of_machine) > 1:
            names = ", ".join(sorted(nodes_of_machine))
            return _wrong_host_failure(facts, f"several Nodes have the same machine: {names}")
        return with_annotation_sign(facts, node)

    verified = {name: verify(name, facts) for name, facts in answered.items()}
    return {**observations, **verified}


def with_annotation_sign(facts: HostFacts, node: Node) -> HostFacts:
    if Source.ANNOTATION not in facts.sources:
        return facts
    return replace(facts, signs=(*facts.signs, annotation_sign(node)))


def _why_not_its_machine(
    node: Node, facts: HostFacts, nodes_of_boot: Sequence[str], *, is_unique: bool
) -> ProbeFailure | None:
    """Return why the facts are not of this Node's boot, or None.

    `nodes_of_boot` report the host's boot ID. `is_unique`: no other Node reports this machine ID.
    """
    if not facts.machine_id:
        why = "the machine ID of the host cannot be read"
        hint = "The SSH user must be able to read /etc/machine-id."
        return _unreported_failure(facts, why, hint)
    if facts.boot_id == node.boot_id:
        return None
    is_other_machine = is_unique and facts.machine_id != node.machine_id
    # This Node is not one of them.
    if nodes_of_boot or is_other_machine:
        evidence = f"its machine ID is {facts.machine_id}, the Node's is {node.machine_id}"
        if nodes_of_boot:
            evidence = f"it is {', '.join(nodes_of_boot)}"
        return _wrong_host_failure(facts, f"the host is not this Node's machine: {evidence}")
    return _unreported_failure(
        facts,
        f"its kubelet has not reported since the last boot: its boot ID is"
        f" {facts.boot_id}, the Node's is {node.boot_id}",
        "Wait until it has reported. If it does not, see systemctl status kubelet on the host, and"
        f" kubectl describe node {node.name}",
    )


def _wrong_host_failure(facts: HostFacts, why: str) -> ProbeFailure:
    return ProbeFailure(
        facts.host,
        ProbeFailureKind.WRONG_HOST,
        f"{why} (at {facts.host.address})",
        "Check which machine the Node's address, the inventory or ~/.ssh/config points to: kubectl"
        " get node -o wide, ssh -G HOST",
        summary=why,
    )


def _unreported_failure(facts: HostFacts, why: str, hint: str) -> ProbeFailure:
    return ProbeFailure(facts.host, ProbeFailureKind.UNREPORTED, why, hint)


class AmbiguousMachineId(Struct, frozen=True):
    """One that several Nodes report, or the empty one."""

    machine_id: str
    nodes: tuple[str, ...]

    @property
    def cause(self) -> str:
        names = shortened(self.nodes, _MOST_NAMES)
        if self.machine_id:
            return (
                f"{names} report the same machine ID: their kubelets read the machine ID of an"
                " image, not of the host"
            )
        return f"{names}: nodeInfo has no machine ID, because the kubelet finds no /etc/machine-id"


def ambiguous_machine_ids(nodes: Iterable[Node]) -> Iterator[AmbiguousMachineId]:
    names_by_machine_id: defaultdict[str, list[str]] = defaultdict(list)
    for node in nodes:
        names_by_machine_id[node.machine_id].append(node.name)
    for machine_id, names in names_by_machine_id.items():
        if len(names) > 1 or not machine_id:
            yield AmbiguousMachineId(machine_id, tuple(sorted(names)))
