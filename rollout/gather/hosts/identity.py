"""Which host stands behind which Node, and whether it is the Node's machine that answered.

Without an inventory the Nodes are the hosts. With one, its hosts are matched to the Nodes, surest
sign first; what is left over on either side is named, never guessed at.

A Node's address is what its kubelet says it is, and an inventory, an `ssh_config` or an address
translation may lead elsewhere. So an answer counts only if its boot ID is that of the Node's
`nodeInfo`, and no other Node has the same. What does not agree is no answer: nothing is planned,
drained or rebooted on it.

The machine ID of the `nodeInfo` proves nothing. A kubelet in a container without the host's
/etc/machine-id reports the one of its image, which every such Node has. The host's own machine ID,
read over SSH, tells whether it is still the same host after its reboot.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rollout.errors import InventoryError
from rollout.gather.inventory import Inventory, SshDefaults
from rollout.model.addresses import normalize_address
from rollout.model.cluster import Node
from rollout.model.detection import Source
from rollout.model.host import (
    Host,
    HostFacts,
    HostObservation,
    ProbeFailure,
    ProbeFailureKind,
    is_address,
)
from rollout.model.reboot_request import annotation_sign
from rollout.model.text import shortened

HOSTNAME_LABEL = "kubernetes.io/hostname"
# Of Nodes with the same machine ID.
_NAMED = 5
MACHINE_ID_FIX = (
    "Give the kubelet's container the host's /etc/machine-id, read-only, and restart the kubelet."
)
_ADDRESS_TYPES = ("InternalIP", "ExternalIP", "Hostname")


def match_hosts(
    nodes: Sequence[Node], inventory: Inventory | None, defaults: SshDefaults
) -> Mapping[str, Host]:
    """Hosts by Node name; `InventoryError` where two hosts of the inventory claim one Node.

    Without an inventory a Node that reports no address, or only what is none, still has a host,
    with an empty address. With one, a Node's host has its name, else its address, else its hostname
    label. Refused is a host by the name of one Node at the address of another: the wrong machine
    would reboot.
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
        node = host.name if host.name in names else at_address or by_label.get(host.name)
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
    by_type = {
        address.type: address.address
        for address in reversed(node.addresses)
        if is_address(address.address)
    }
    address = next((by_type[kind] for kind in _ADDRESS_TYPES if kind in by_type), "")
    return Host(node.name, address, defaults.port, defaults.user, defaults.key_file)


def _owners(signs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Names of the Nodes by sign; one that several Nodes share tells nothing and is left out."""
    by_sign = _names_by_sign(signs)
    return {sign: names[0] for sign, names in by_sign.items() if len(names) == 1}


def _names_by_sign(signs: Iterable[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    """Names by their addresses, machines or labels; a machine that says nothing of itself is shared with nobody."""
    names: defaultdict[str, set[str]] = defaultdict(set)
    for name, sign in signs:
        if sign:
            names[sign].add(name)
    return {sign: tuple(sorted(members)) for sign, members in names.items()}


def verify_identities(
    nodes: Sequence[Node], observations: Mapping[str, HostObservation]
) -> Mapping[str, HostObservation]:
    """Return the observations by Node name; those that are not surely of their own Node's machine as failures.

    The others have what stands on their Nodes, where that is asked for, among what they say.
    `nodes` are all of the cluster, for another one may be the machine that answered.
    """
    by_name = {node.name: node for node in nodes}
    answered = {name: facts for name, facts in observations.items() if isinstance(facts, HostFacts)}
    reported = _names_by_sign((node.name, node.boot_id) for node in nodes)
    reached = _names_by_sign((name, facts.boot_id) for name, facts in answered.items())
    ambiguous = {ambiguity.machine_id for ambiguity in ambiguous_machine_ids(nodes)}

    def judged(name: str, facts: HostFacts) -> HostObservation:
        node = by_name.get(name)
        if node is None or not node.boot_id:
            why = "its Node does not name its machine: nodeInfo has no boot id"
            return _missing_identity(
                facts, why, f"See: kubectl get node {name} -o jsonpath={{.status.nodeInfo}}"
            )
        others = reported.get(facts.boot_id, ())
        # of two Nodes at one machine nobody can say which it is, so that neither is touched
        sharing = {*others, *reached.get(facts.boot_id, ())} - {name}
        shared = f"several Nodes have the same machine: {', '.join(sorted({name, *sharing}))}"
        is_told_apart = node.machine_id not in ambiguous
        trouble = _disagreement(node, facts, others, is_told_apart=is_told_apart)
        if trouble is None and sharing:
            trouble = _wrong(facts, shared)
        return trouble or with_node(facts, node)

    return {**observations, **{name: judged(name, facts) for name, facts in answered.items()}}


def with_node(facts: HostFacts, node: Node) -> HostFacts:
    """Add the sign of the Node's annotation to the facts, if that source is configured."""
    if Source.ANNOTATION not in facts.sources:
        return facts
    return replace(facts, signs=(*facts.signs, annotation_sign(node)))


def _disagreement(
    node: Node, facts: HostFacts, others: Sequence[str], *, is_told_apart: bool
) -> ProbeFailure | None:
    """Return why the facts are not of this Node's host and boot; None if they are.

    `others` are the Nodes that report the boot of these facts. `is_told_apart`: no other Node has
    this machine ID.
    """
    if not facts.machine_id:
        why = "the machine id of the host cannot be read"
        return _missing_identity(facts, why, "/etc/machine-id must be readable for the SSH user.")
    if facts.boot_id == node.boot_id:
        return None
    if others or (is_told_apart and facts.machine_id != node.machine_id):
        it_is = f"it is {', '.join(others)}"
        whose = (
            it_is if others else f"machine id {facts.machine_id}, the Node has {node.machine_id}"
        )
        return _wrong(facts, f"the host is another machine than this Node's: {whose}")
    return _missing_identity(
        facts,
        f"its kubelet has not reported since its last boot: boot id {facts.boot_id}, the Node has"
        f" {node.boot_id}",
        "Wait until it has; else see systemctl status kubelet on the host, and kubectl describe"
        f" node {node.name}",
    )


def _wrong(facts: HostFacts, why: str) -> ProbeFailure:
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
    """A machine ID that several Nodes report, or an empty one, with the names of these Nodes."""

    machine_id: str
    nodes: tuple[str, ...]

    @property
    def cause(self) -> str:
        """Return the probable cause, in a clause."""
        names = shortened(self.nodes, _NAMED)
        if self.machine_id:
            return (
                f"{names} report the same machine ID: their kubelets read that of an image, not the"
                " host's"
            )
        return f"{names}: nodeInfo has no machine ID, because the kubelet finds no /etc/machine-id"


def ambiguous_machine_ids(nodes: Iterable[Node]) -> Iterator[AmbiguousMachineId]:
    """Yield each machine ID that does not identify one Node."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for node in nodes:
        names[node.machine_id].append(node.name)
    for machine_id, reporting in names.items():
        if len(reporting) > 1 or not machine_id:
            yield AmbiguousMachineId(machine_id, tuple(sorted(reporting)))
