"""Other reboot coordinators, as they stand in the cluster."""

from dataclasses import dataclass


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
class LockHolder:
    """Who has kured's lock: a node, or what somebody wrote by hand, which has no time of its creation.

    `was_cordoned` is whether the node was cordoned before kured came to it; None where the lock does not say.
    """

    name: str
    is_by_hand: bool
    was_cordoned: bool | None


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment or DaemonSet of a coordinator: the one that decides, or an `agent` of it.

    `running`: it asks for pods. `lock` is the annotation with kured's lock, empty where there is none; `lock_writer`
    the field manager that wrote it, as far as that is known.
    """

    coordinator: Coordinator
    running: bool
    agent: bool = False
    lock: str = ""
    lock_writer: str = ""
    holders: tuple[LockHolder, ...] = ()
    resource_version: str = ""

    @property
    def place(self) -> str:
        """`daemonset/kube-system/kured`."""
        coordinator = self.coordinator
        return f"{coordinator.kind.lower()}/{coordinator.namespace}/{coordinator.name}"


@dataclass(frozen=True, slots=True)
class Rival:
    """A coordinator that may act. `object` is what to look at, `message` what it is and the way out."""

    name: str
    object: str
    message: str
