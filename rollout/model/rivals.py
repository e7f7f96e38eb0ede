"""Other reboot coordinators, as they stand in the cluster."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Coordinator:
    """One that may reboot nodes. `rival` is the name for flags, `busy_with` the node that it has in hand now."""

    rival: str
    kind: str
    namespace: str
    name: str
    busy_with: str = ""
