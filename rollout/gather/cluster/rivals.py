"""Looking for other reboot coordinators among the Deployments and DaemonSets, whatever they are called here.

One is known by its name, by one of the labels that name a program, or by its image. kured is known
by its lock, too. Whatever this program itself runs in the cluster is none of them.
"""

from collections.abc import Iterator

import msgspec

from rollout.errors import ApiError, ApiNotFoundError
from rollout.gather.cluster import decode, wire
from rollout.gather.cluster.listing import read_if_allowed, read_list
from rollout.gather.cluster.wire import decoder_of
from rollout.model.json_text import NOT_READ
from rollout.model.rivals import Coordinator
from rollout.ports import ClusterApi

DEPLOYMENTS = "/apis/apps/v1/deployments"
DAEMON_SETS = "/apis/apps/v1/daemonsets"
PLANS = "/apis/upgrade.cattle.io/v1/plans"
_KURED = "kured"
_UPGRADE = "system-upgrade-controller"
_FLUO = "fluo"
_CLUO = "cluo"
_CRO = "cro"
_KRM = "krm"
_FLEETLOCK = "fleetlock"
_OPERATORS = {
    "flatcar-linux-update-operator": _FLUO,
    "container-linux-update-operator": _CLUO,
    "reboot-controller": _CRO,
    "reboot-manager": _KRM,
    "kubernetes_reboot_manager": _KRM,
    "fleetlock": _FLEETLOCK,
    _UPGRADE: _UPGRADE,
    "machine-config-controller": "mco",
    "machine-config-operator": "mco",
    "bottlerocket-update-operator": "brupop",
    "brupop-controller-deployment": "brupop",
    "tuppr": "tuppr",
}
# Of the same image as a coordinator, and no harm without it.
_HARMLESS = "brupop-apiserver"
# Of this only the image is proof: others have workloads of this name.
_AIRLOCK = "airlock"
# Of our own objects, by which `rollout manifests` has them found: our FleetLock server shares our
# lock.
_OURS = ("app.kubernetes.io/name", "node-rollout")
_NAMING_LABELS = ("app.kubernetes.io/name", "app", "k8s-app", "name")
_UNSEEN = "some other reboot coordinators cannot be looked for"
# kured's own name for it, or another that `--lock-annotation` gave it.
_LOCK_SUFFIX = "kured-node-lock"


class _CoordinatorContainer(wire.Wire, frozen=True):
    image: str = ""
    args: tuple[str, ...] = ()


class _CoordinatorPodSpec(wire.Wire, frozen=True):
    containers: tuple[_CoordinatorContainer, ...] = ()


class _CoordinatorTemplate(wire.Wire, frozen=True):
    spec: _CoordinatorPodSpec = _CoordinatorPodSpec()


class _CoordinatorSpec(wire.Wire, frozen=True):
    replicas: int = 1
    template: _CoordinatorTemplate = _CoordinatorTemplate()


class _CoordinatorStatus(wire.Wire, frozen=True):
    observed_generation: int = 0
    desired_number_scheduled: int = 0


class _CoordinatorMeta(wire.Meta, frozen=True):
    generation: int = 0


class _WireCoordinator(wire.Wire, frozen=True):
    metadata: _CoordinatorMeta
    spec: _CoordinatorSpec = _CoordinatorSpec()
    status: _CoordinatorStatus = _CoordinatorStatus()


class _KuredHolder(wire.Wire, frozen=True):
    node_id: str = msgspec.field(default="", name="nodeID")
    ttl: int = msgspec.field(default=0, name="TTL")


class _KuredLock(_KuredHolder, frozen=True):
    """kured's lock: of one holder, or of several."""

    max_owners: int = msgspec.field(default=1, name="maxOwners")
    locks: tuple[_KuredHolder, ...] = ()


def read_coordinators(api: ClusterApi) -> tuple[tuple[Coordinator, ...], tuple[str, ...]]:
    """Coordinators that may act, and sentences about what this user may not see."""
    deployments, unseen = read_if_allowed(lambda: _deployments(api), _UNSEEN)
    daemon_sets, also_unseen = read_if_allowed(lambda: _daemon_sets(api), _UNSEEN)
    rivals = (*deployments, *daemon_sets)
    return tuple(one for one in rivals if one.rival != _UPGRADE or _has_plans(api)), (
        *unseen,
        *also_unseen,
    )


def _deployments(api: ClusterApi) -> Iterator[Coordinator]:
    for item in read_list(api, DEPLOYMENTS, _WireCoordinator, lambda item: item).items:
        rivals = [rival for program, rival in _OPERATORS.items() if _is_of(item, program)]
        if _AIRLOCK in _programs(item):
            rivals.append(_FLEETLOCK)
        meta = item.metadata
        if rivals and item.spec.replicas and meta.name != _HARMLESS and not _is_ours(item):
            yield Coordinator(rivals[0], "Deployment", meta.namespace, meta.name)


def _daemon_sets(api: ClusterApi) -> Iterator[Coordinator]:
    """kured's; those of other systems do nothing without their operators."""
    for item in read_list(api, DAEMON_SETS, _WireCoordinator, lambda item: item).items:
        meta = item.metadata
        locks = [value for name, value in meta.annotations.items() if name.endswith(_LOCK_SUFFIX)]
        if (locks or _is_of(item, _KURED)) and not _runs_nowhere(item):
            held, locked = _lock_holders(locks[0] if locks else "")
            yield Coordinator(_KURED, "DaemonSet", meta.namespace, meta.name, held, locked=locked)


def _is_ours(item: _WireCoordinator) -> bool:
    """Whether it is a FleetLock server of this program, whatever its name and image are."""
    label, value = _OURS
    commands = (container.args[:1] for container in item.spec.template.spec.containers)
    return item.metadata.labels.get(label) == value or ("fleetlock",) in commands


def _is_of(item: _WireCoordinator, program: str) -> bool:
    names = (item.metadata.name, *map(item.metadata.labels.get, _NAMING_LABELS), *_programs(item))
    return program in names


def _programs(item: _WireCoordinator) -> frozenset[str]:
    """Return the last parts of its images' names, without tag and digest."""
    images = (container.image.partition("@")[0] for container in item.spec.template.spec.containers)
    return frozenset(image.rpartition("/")[2].partition(":")[0] for image in images)


def _runs_nowhere(item: _WireCoordinator) -> bool:
    """Whether no node is chosen: what a DaemonSet has instead of no replicas. Only a status of this spec counts."""
    status = item.status
    return status.desired_number_scheduled == 0 and status.observed_generation >= max(
        1, item.metadata.generation
    )


def _has_plans(api: ClusterApi) -> bool:
    """Whether the controller has anything to do; where that cannot be seen, it may."""
    try:
        return bool(
            decode.decode(api.get(PLANS, {"limit": "1"}), wire.Page[_WireCoordinator], PLANS).items
        )
    except ApiNotFoundError:
        return False
    except ApiError as error:
        if not error.is_forbidden:
            raise
        return True


def _lock_holders(written: str) -> tuple[tuple[str, ...], bool]:
    """Who holds a lock, and whether nobody else can have it for good; one that cannot be read is held by nobody."""
    try:
        lock = decoder_of(_KuredLock).decode(written)
    except NOT_READ:
        return (), False
    held = (lock, *lock.locks) if lock.node_id else lock.locks
    most = 1 if lock.node_id else lock.max_owners
    locked = bool(held) and len(held) >= most and all(holder.ttl == 0 for holder in held)
    return tuple(holder.node_id for holder in held if holder.node_id), locked
