"""Other reboot coordinators, as they stand in the cluster."""

from dataclasses import dataclass

# In the sentence on a node in its hands: what follows is the command that removes its marks.
IF_REMOVED = "if it was removed: "


@dataclass(frozen=True, slots=True)
class Coordinator:
    """One that may reboot nodes. `rival` is the name for flags.

    `holders` are those that have its lock now: nodes, or whatever somebody wrote there by hand. `locked` tells a lock
    that nobody else can have, and that does not expire.
    """

    rival: str
    kind: str
    namespace: str
    name: str
    holders: tuple[str, ...] = ()
    locked: bool = False


@dataclass(frozen=True, slots=True)
class Rival:
    """A coordinator that may act. `object` is what to look at, `message` what it is and the way out."""

    name: str
    object: str
    message: str
