"""Other reboot coordinators in the cluster: two that reboot the same nodes break each other's limits."""

from dataclasses import dataclass

from rollout.errors import UsageError
from rollout.model.cluster import ClusterSnapshot
from rollout.model.rivals import Coordinator

FLUO = "fluo"
CLUO = "cluo"
KURED = "kured"
LOCKSMITHD = "locksmithd"
UPGRADE_CONTROLLER = "system-upgrade-controller"
RIVALS = (LOCKSMITHD, FLUO, CLUO, KURED, UPGRADE_CONTROLLER)


@dataclass(frozen=True, slots=True)
class Rival:
    """A coordinator that may act. `object` is what to look at, `message` what it is and the way out."""

    name: str
    object: str
    message: str


_WAYS_OUT = {
    FLUO: "pause it (kubectl -n {namespace} scale {kind} {name} --replicas=0)",
    CLUO: "pause it (kubectl -n {namespace} scale {kind} {name} --replicas=0)",
    UPGRADE_CONTROLLER: "pause it (kubectl -n {namespace} scale {kind} {name} --replicas=0)",
    KURED: "remove it, or hold its lock by hand",
}


def checked_name(name: str) -> str:
    """The name of a coordinator; `UsageError` for any other."""
    if name not in RIVALS:
        raise UsageError(f"{name!r} is no known reboot coordinator", hint=f"Known are {', '.join(RIVALS)}.")
    return name


def rivals(snapshot: ClusterSnapshot, ignored: tuple[str, ...]) -> tuple[Rival, ...]:
    """Coordinators that may act on this cluster, in order, without those that are ignored."""
    return tuple(_rival(each) for each in snapshot.coordinators if each.rival not in ignored)


def _rival(found: Coordinator) -> Rival:
    way_out = _WAYS_OUT[found.rival].format(namespace=found.namespace, kind=found.kind.lower(), name=found.name)
    held = f" and holds its lock for {found.busy_with}" if found.busy_with else ""
    return Rival(
        found.rival,
        f"{found.kind.lower()}/{found.namespace}/{found.name}",
        f"reboots nodes by itself{held}: {way_out}, or go on beside it with --ignore-rival {found.rival}",
    )
