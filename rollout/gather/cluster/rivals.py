"""Finds other reboot coordinators by names, labels, images or lock."""

from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise

import msgspec

from rollout.errors import ApiError, ApiNotFoundError
from rollout.gather.cluster import decode, wire
from rollout.gather.cluster.listing import ReadIfAllowed, read_if_allowed, read_objects
from rollout.gather.cluster.wire import decoder_of
from rollout.model.json_text import DECODE_ERRORS
from rollout.model.rivals import TRIGGERS, Coordinator, LockAnnotation, Rival
from rollout.ports import ClusterApi

DEPLOYMENTS = "/apis/apps/v1/deployments"
DAEMON_SETS = "/apis/apps/v1/daemonsets"
_KURED = Rival.KURED
_KURED_VARIABLE = "KURED_"
_RIVAL_BY_PROGRAM = {
    "flatcar-linux-update-operator": Rival.FLUO,
    "container-linux-update-operator": Rival.CLUO,
    "reboot-controller": Rival.CRO,
    "reboot-manager": Rival.KRM,
    "kubernetes_reboot_manager": Rival.KRM,
    "fleetlock": Rival.FLEETLOCK,
    "system-upgrade-controller": Rival.UPGRADE_CONTROLLER,
    "machine-config-controller": Rival.MCO,
    "machine-config-operator": Rival.MCO,
    "bottlerocket-update-operator": Rival.BRUPOP,
    "brupop-controller-deployment": Rival.BRUPOP,
    "tuppr": Rival.TUPPR,
    # https://github.com/bootc-dev/bootc-operator
    "bootc-operator": Rival.BOOTC_OPERATOR,
    # https://github.com/kairos-io/kairos-operator
    "kairos-operator": Rival.KAIROS,
    # https://github.com/NVIDIA/nodewright, formerly Skyhook
    "skyhook-operator": Rival.NODEWRIGHT,
    # https://github.com/NVIDIA/NVSentinel, and its first name
    "fault-remediation": Rival.NVSENTINEL,
    "fault-remediation-module": Rival.NVSENTINEL,
    # https://github.com/Mellanox/maintenance-operator
    "maintenance-operator": Rival.NVIDIA_MAINTENANCE,
    # https://github.com/medik8s/node-maintenance-operator
    "node-maintenance-operator-controller-manager": Rival.MEDIK8S_MAINTENANCE,
    "node-maintenance-operator": Rival.MEDIK8S_MAINTENANCE,
    # https://github.com/Nils-Svensson/node-maintenance-orchestrator
    "node-maintenance-orchestrator": Rival.MAINTENANCE_ORCHESTRATOR,
}
# It has a coordinator's image, but does not reboot nodes.
_HARMLESS_DEPLOYMENT = "brupop-apiserver"
# Known by its image alone: other software has this name.
_AIRLOCK = "airlock"
# Our FleetLock server shares the lock.
_OWN_LABEL = ("app.kubernetes.io/name", "node-rollout")
_NAMING_LABELS = ("app.kubernetes.io/name", "app", "k8s-app", "name")
_UNSEEN_WARNING = "rollout cannot check for some other reboot coordinators"
# `--lock-annotation` usually changes the prefix.
_LOCK_SUFFIX = "kured-node-lock"
_DEFAULT_LOCK = f"weave.works/{_LOCK_SUFFIX}"
# rollout takes no lock of more nodes.
_MOST_OWNERS = 20


class _Variable(wire.Wire, frozen=True):
    name: str = ""
    value: str = ""


class _CoordinatorContainer(wire.Wire, frozen=True):
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[_Variable, ...] = ()


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


class _WireCoordinator(wire.Wire, frozen=True):
    metadata: wire.SpecifiedMeta
    spec: _CoordinatorSpec = _CoordinatorSpec()
    status: _CoordinatorStatus = _CoordinatorStatus()


class _KuredHolder(wire.Wire, frozen=True):
    node_id: str = msgspec.field(default="", name="nodeID")
    ttl: int = msgspec.field(default=0, name="TTL")


class _KuredLock(_KuredHolder, frozen=True):
    max_owners: int = msgspec.field(default=1, name="maxOwners")
    locks: tuple[_KuredHolder, ...] = ()


def read_coordinators(api: ClusterApi) -> ReadIfAllowed[Coordinator]:
    deployments, warnings = read_if_allowed(lambda: _read_deployments(api), _UNSEEN_WARNING)
    daemon_sets, more_warnings = read_if_allowed(lambda: _read_daemon_sets(api), _UNSEEN_WARNING)
    found = (*deployments, *daemon_sets)
    active = tuple(coordinator for coordinator in found if _may_have_work(api, coordinator))
    return ReadIfAllowed(active, (*warnings, *more_warnings))


def _read_deployments(api: ClusterApi) -> Iterator[Coordinator]:
    for item in read_objects(api, DEPLOYMENTS, _WireCoordinator):
        rival = _find_rival(item)
        meta = item.metadata
        is_running = item.spec.replicas > 0
        may_reboot = is_running and meta.name != _HARMLESS_DEPLOYMENT
        if rival and may_reboot and not _is_rollout(item):
            yield Coordinator(rival, "Deployment", meta.namespace, meta.name)


def _find_rival(deployment: _WireCoordinator) -> Rival | None:
    names = _names(deployment)
    for program, rival in _RIVAL_BY_PROGRAM.items():
        if program in names:
            return rival
    return Rival.FLEETLOCK if _AIRLOCK in _programs(deployment) else None


def _read_daemon_sets(api: ClusterApi) -> Iterator[Coordinator]:
    for item in read_objects(api, DAEMON_SETS, _WireCoordinator):
        locks = [name for name in item.metadata.annotations if name.endswith(_LOCK_SUFFIX)]
        if (locks or _KURED in _names(item)) and not _runs_nowhere(item):
            yield _kured_coordinator(item, locks[0] if locks else _DEFAULT_LOCK)


def _kured_coordinator(item: _WireCoordinator, likely_lock: str) -> Coordinator:
    """Return kured; its lock is an annotation of its DaemonSet.

    rollout takes the lock: while nodes hold it, kured reboots no other. `likely_lock` is for
    settings without a name.
    """
    meta = item.metadata
    settings = _kured_settings(item)
    most_holders = _parse_concurrency(settings.get("concurrency", ""))
    # A missing or zero lock-ttl, such as `0h0m`, means never.
    may_expire = any(digit in settings.get("lock-ttl", "") for digit in "123456789")
    lock_name = settings.get("lock-annotation") or likely_lock
    can_be_taken = not may_expire and most_holders <= _MOST_OWNERS
    holders, stays_full = _lock_holders(meta.annotations.get(lock_name, ""), most_holders)
    return Coordinator(
        rival=_KURED,
        kind="DaemonSet",
        namespace=meta.namespace,
        name=meta.name,
        holders=holders,
        locked=stays_full and not may_expire,
        lock=LockAnnotation(lock_name, most_holders) if can_be_taken else None,
    )


def _kured_settings(item: _WireCoordinator) -> Mapping[str, str]:
    """KURED_LOCK_TTL is a form of --lock-ttl."""
    settings: dict[str, str] = {}
    for container in item.spec.template.spec.containers:
        for variable in container.env:
            if variable.name.startswith(_KURED_VARIABLE):
                flag = variable.name.removeprefix(_KURED_VARIABLE)
                settings[flag.lower().replace("_", "-")] = variable.value
        words = (*container.command, *container.args)
        for word, next_word in pairwise((*words, "")):
            flag, equals, value = word.partition("=")
            settings[flag.removeprefix("--")] = value if equals else next_word
    return settings


def _parse_concurrency(concurrency: str) -> int:
    return max(1, int(concurrency[:4])) if concurrency.isdecimal() else 1


def _is_rollout(item: _WireCoordinator) -> bool:
    label, value = _OWN_LABEL
    commands = (container.args[:1] for container in item.spec.template.spec.containers)
    return item.metadata.labels.get(label) == value or ("fleetlock",) in commands


def _names(item: _WireCoordinator) -> Collection[str | None]:
    labels = map(item.metadata.labels.get, _NAMING_LABELS)
    return (item.metadata.name, *labels, *_programs(item))


def _programs(item: _WireCoordinator) -> frozenset[str]:
    """Return `kured` of `ghcr.io/kubereboot/kured:1.16`."""
    images = (container.image.partition("@")[0] for container in item.spec.template.spec.containers)
    return frozenset(image.rpartition("/")[2].partition(":")[0] for image in images)


def _runs_nowhere(daemon_set: _WireCoordinator) -> bool:
    status = daemon_set.status
    is_current = status.observed_generation >= max(1, daemon_set.metadata.generation)
    return is_current and status.desired_number_scheduled == 0


def _may_have_work(api: ClusterApi, coordinator: Coordinator) -> bool:
    """Whether an object triggers the coordinator, or it needs none."""
    trigger = TRIGGERS.get(Rival(coordinator.rival))
    if trigger is None:
        return True
    try:
        page = api.get(trigger.path, {"limit": "1"})
        return bool(decode.decode(page, wire.ListPage[_WireCoordinator], trigger.path).items)
    except ApiNotFoundError:
        return False
    except ApiError as error:
        if not error.is_forbidden:
            raise
        return True


def _lock_holders(annotation: str, most_holders: int) -> tuple[tuple[str, ...], bool]:
    """Return the holders of kured's lock, and whether it stays full.

    The annotation is for one holder, or a list (`--concurrency`).
    """
    try:
        lock = decoder_of(_KuredLock).decode(annotation)
    except DECODE_ERRORS:
        return (), False
    holders: tuple[_KuredHolder, ...] = lock.locks
    is_full = len(holders) >= max(most_holders, lock.max_owners)
    is_for_one_holder = bool(lock.node_id)
    if is_for_one_holder:
        holders = (lock, *lock.locks)
        # A kured with several holders ignores this form.
        is_full = most_holders == 1
    never_expires = all(holder.ttl == 0 for holder in holders)
    names = tuple(holder.node_id for holder in holders if holder.node_id)
    stays_full = bool(holders) and is_full and never_expires
    return names, stays_full
