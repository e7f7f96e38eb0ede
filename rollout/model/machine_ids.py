"""Machine IDs by which no Node can be told: several Nodes report the same one, or a Node reports none."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rollout.model.cluster import Node
from rollout.model.text import shortened

_NAMED = 5
MACHINE_ID_FIX = "Give the kubelet's container the host's /etc/machine-id, read-only, and restart the kubelet."


@dataclass(frozen=True, slots=True)
class AmbiguousMachineId:
    """A machine ID, empty for none, and the names of the Nodes that report it."""

    machine_id: str
    nodes: tuple[str, ...]

    @property
    def cause(self) -> str:
        """Why the kubelets of these Nodes probably report it."""
        names = shortened(self.nodes, _NAMED)
        if self.machine_id:
            return f"{names} report the same machine ID: their kubelets read that of an image, not the host's"
        return f"{names}: nodeInfo has no machine ID, because the kubelet finds no /etc/machine-id"


def ambiguous_machine_ids(nodes: Iterable[Node]) -> Iterator[AmbiguousMachineId]:
    """Yield each machine ID that does not tell which Node reports it."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for node in nodes:
        names[node.machine_id].append(node.name)
    for machine_id, reporting in names.items():
        if len(reporting) > 1 or not machine_id:
            yield AmbiguousMachineId(machine_id, tuple(sorted(reporting)))
