"""Looking for other reboot coordinators: a few small lists, chosen by the server."""

from collections.abc import Iterator

import msgspec

from rollout.errors import ApiError, ApiNotFoundError
from rollout.gather import decode, wire
from rollout.model.rivals import Coordinator
from rollout.ports import ClusterApi

DEPLOYMENTS = "/apis/apps/v1/deployments"
DAEMON_SETS = "/apis/apps/v1/daemonsets"
PLANS = "/apis/upgrade.cattle.io/v1/plans"
_KURED_LOCK = "weave.works/kured-node-lock"
_FORBIDDEN = 403
_UPGRADE = "system-upgrade-controller"
_OPERATORS = {
    "fluo": "flatcar-linux-update-operator",
    "cluo": "container-linux-update-operator",
    _UPGRADE: _UPGRADE,
}


class _Spec(msgspec.Struct, frozen=True, gc=False):
    replicas: int | None = None


class _Item(msgspec.Struct, frozen=True, gc=False):
    metadata: wire.Meta
    spec: _Spec | None = None


class _List(msgspec.Struct, frozen=True, gc=False):
    items: tuple[_Item, ...] | None = None


class _Holder(msgspec.Struct, frozen=True, gc=False):
    node_id: str = msgspec.field(default="", name="nodeID")


class _Lock(msgspec.Struct, frozen=True, gc=False):
    """kured's lock, of one holder or of several."""

    node_id: str = msgspec.field(default="", name="nodeID")
    locks: tuple[_Holder, ...] = ()


def read_coordinators(api: ClusterApi) -> tuple[tuple[Coordinator, ...], tuple[str, ...]]:
    """Coordinators that may act, and sentences about what this user may not see."""
    found: list[Coordinator] = []
    unseen: list[str] = []
    for look in (_operators, _kured):
        try:
            found += look(api)
        except ApiNotFoundError:
            continue
        except ApiError as error:
            if error.status != _FORBIDDEN:
                raise
            unseen.append(f"not all other reboot coordinators can be looked for: {error.message}")
    return tuple(found), tuple(unseen)


def _operators(api: ClusterApi) -> Iterator[Coordinator]:
    for rival, name in _OPERATORS.items():
        for item in _items(api, DEPLOYMENTS, name):
            replicas = item.spec.replicas if item.spec else None
            if replicas != 0 and (rival != _UPGRADE or _has_plans(api)):
                yield Coordinator(rival, "Deployment", item.metadata.namespace or "", item.metadata.name)


def _kured(api: ClusterApi) -> Iterator[Coordinator]:
    for item in _items(api, DAEMON_SETS, "kured"):
        lock = (item.metadata.annotations or {}).get(_KURED_LOCK, "")
        yield Coordinator("kured", "DaemonSet", item.metadata.namespace or "", item.metadata.name, _lock_holders(lock))


def _items(api: ClusterApi, path: str, name: str) -> tuple[_Item, ...]:
    body = api.get(path, {"fieldSelector": f"metadata.name={name}"})
    return decode.decode(body, _List, path).items or ()


def _has_plans(api: ClusterApi) -> bool:
    """Whether the controller has anything to do; where that cannot be seen, it may."""
    try:
        return bool(decode.decode(api.get(PLANS, {"limit": "1"}), _List, PLANS).items)
    except ApiNotFoundError:
        return False
    except ApiError as error:
        if error.status != _FORBIDDEN:
            raise
        return True


def _lock_holders(lock: str) -> str:
    try:
        held = msgspec.json.decode(lock, type=_Lock) if lock else _Lock()
    except msgspec.MsgspecError:
        return ""
    return ", ".join(holder for holder in (held.node_id, *(each.node_id for each in held.locks)) if holder)
