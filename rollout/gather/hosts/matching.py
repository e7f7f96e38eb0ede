"""Which SSH host stands behind which Node.

Without an inventory the Nodes are the hosts. With one, its hosts are matched to the Nodes, surest sign first;
what is left over on either side is named, never guessed at.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rollout.errors import InventoryError
from rollout.gather.inventory.reading import Inventory, SshDefaults
from rollout.model.cluster import Node
from rollout.model.host import Host, is_address

HOSTNAME_LABEL = "kubernetes.io/hostname"
_ADDRESS_TYPES = ("InternalIP", "ExternalIP", "Hostname")


@dataclass(frozen=True, slots=True)
class HostMap:
    """Hosts by Node name, and who is left alone.

    Without an inventory a Node that reports no address, or only what is none, still has a host, with an empty address.
    """

    hosts: Mapping[str, Host]
    hosts_without_node: tuple[Host, ...] = ()
    nodes_without_host: tuple[str, ...] = ()


def match_hosts(nodes: Sequence[Node], inventory: Inventory | None, defaults: SshDefaults) -> HostMap:
    """Hosts of the Nodes; `InventoryError` where two hosts of the inventory claim one Node."""
    if inventory is None:
        return HostMap({node.name: _from_node(node, defaults) for node in nodes})
    by_node = _match(nodes, inventory.hosts)
    matched = {host.name for host in by_node.values()}
    return HostMap(
        hosts={node.name: by_node[node.name] for node in nodes if node.name in by_node},
        hosts_without_node=tuple(host for host in inventory.hosts if host.name not in matched),
        nodes_without_host=tuple(node.name for node in nodes if node.name not in by_node),
    )


def _from_node(node: Node, defaults: SshDefaults) -> Host:
    by_type = {address.type: address.address for address in reversed(node.addresses) if is_address(address.address)}
    address = next((by_type[kind] for kind in _ADDRESS_TYPES if kind in by_type), "")
    return Host(node.name, address, defaults.port, defaults.user, defaults.key_file)


def _match(nodes: Sequence[Node], hosts: Sequence[Host]) -> dict[str, Host]:
    """Each host's Node by name, else by address, else by hostname label."""
    by_name = {node.name: node.name for node in nodes}
    by_address = _owners((node.name, address.address.lower()) for node in nodes for address in node.addresses)
    by_label = _owners((node.name, node.labels.get(HOSTNAME_LABEL, "")) for node in nodes)
    by_node: dict[str, Host] = {}
    for host in hosts:
        at_address = by_address.get(host.address.lower())
        node = by_name.get(host.name) or at_address or by_label.get(host.name)
        if node is not None:
            _agree(host, node, at_address)
            _claim(by_node, node, host)
    return by_node


def _owners(signs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Names of the Nodes by sign; one that several Nodes share tells nothing and is left out."""
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for node, sign in signs:
        owners[sign].add(node)
    return {sign: next(iter(names)) for sign, names in owners.items() if len(names) == 1 and sign}


def _agree(host: Host, node: str, at_address: str | None) -> None:
    """Refuse a host by the name of one Node at the address of another: the wrong machine would reboot."""
    if at_address is not None and at_address != node:
        raise InventoryError(
            f"host {host.name} of the inventory has the address {host.address} of node {at_address}",
            hint="Correct its ansible_host.",
        )


def _claim(by_node: dict[str, Host], node: str, host: Host) -> None:
    if node in by_node:
        raise InventoryError(
            f"hosts {by_node[node].name} and {host.name} of the inventory are both node {node}",
            hint="Give each host its own address, or remove one of the two.",
        )
    by_node[node] = host
