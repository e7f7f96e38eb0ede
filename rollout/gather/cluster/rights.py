from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from msgspec import Struct

from rollout.gather.cluster import decode, wire
from rollout.model import marks
from rollout.model.gates import HealthRule
from rollout.model.object_reference import ObjectReference
from rollout.model.policy import Policy
from rollout.model.rivals import TRIGGERS, Rival
from rollout.ports import ClusterApi
from rollout.threads import side_by_side

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_CONCURRENT_REVIEWS = 8
_DEFAULT_POLICY = Policy()
# For cluster-scoped objects.
_EVENTS_NAMESPACE = "default"
_CLUSTER_PURPOSE = "identify this cluster"
_MEMORY_PURPOSE = "know which versions are held, which nodes failed, and what is paused"


class Right(Struct, frozen=True):
    verb: str
    # Empty for the core API.
    group: str
    resource: str
    subresource: str = ""
    # Empty for all.
    namespace: str = ""
    # Empty for all; creating cannot be limited.
    name: str = ""
    purpose: str = ""
    # Without it, rollout only knows less.
    optional: bool = False

    def __str__(self) -> str:
        text = f"{self.verb} {self.resource}"
        if self.subresource:
            text += f"/{self.subresource}"
        if self.group:
            text += f".{self.group}"
        if self.name:
            text += f" {self.name}"
        if self.namespace:
            text += f" in namespace {self.namespace}"
        return text


class _RightKey(NamedTuple):
    verb: str
    resource: str
    name: str


class _ReviewStatus(wire.Wire, frozen=True):
    allowed: bool = False


class _Review(wire.Wire, frozen=True):
    status: _ReviewStatus


def has_right(api: ClusterApi, right: Right) -> bool:
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {name: value for name, value in attributes.items() if value}
        },
    }
    return decode.decode(api.create(REVIEWS, body), _Review, REVIEWS).status.allowed


def missing_rights(needed: Iterable[Right], ask: Callable[[Right], bool]) -> tuple[Right, ...]:
    """Return denied rights, even optional; `ask` runs in threads."""
    distinct = tuple(dict.fromkeys(needed))
    has = dict(side_by_side(distinct, ask, most=_CONCURRENT_REVIEWS, name="rights"))
    return tuple(right for right in distinct if not has[right])


def _rights(
    verbs: str,
    resources: str,
    purpose: str,
    *,
    namespace: str = "",
    name: str = "",
    optional: bool = False,
) -> Iterator[Right]:
    """Yield a right for each verb on each RESOURCE or RESOURCE.GROUP."""
    for qualified_resource in resources.split():
        resource, _, group = qualified_resource.partition(".")
        for verb in verbs.split():
            yield Right(
                verb=verb,
                group=group,
                resource=resource,
                namespace=namespace,
                name="" if verb == "create" else name,
                purpose=purpose,
                optional=optional,
            )


def plan_rights() -> tuple[Right, ...]:
    """Return rights for plans. Without an optional one, a plan warns."""
    optional = partial(_rights, optional=True)
    kube_system = "kube-system"
    plans = "plans.upgrade.cattle.io"
    maintenance = [
        f"{trigger.plural}.{trigger.group}"
        for rival, trigger in TRIGGERS.items()
        if rival is not Rival.UPGRADE_CONTROLLER
    ]
    storage = "replicas.longhorn.io settings.longhorn.io"
    return (
        *_rights("get list", "nodes", "list the nodes"),
        *_rights("list", "pods", "see which pods must be evicted"),
        *_rights("get", "namespaces", _CLUSTER_PURPOSE, namespace=kube_system, name=kube_system),
        *_rights("list", "poddisruptionbudgets.policy", "respect disruption budgets"),
        *_rights("list", "daemonsets.apps", "know which pods stay on a node"),
        *optional("list", "volumeattachments.storage.k8s.io", "wait until volumes are detached"),
        *optional("list", "deployments.apps", "detect other reboot coordinators"),
        *optional("list", plans, "see which upgrades the system-upgrade-controller plans"),
        *optional("list", " ".join(maintenance), "see which nodes other operators are maintaining"),
        *optional("list", "persistentvolumes", "know to which nodes volumes can be attached"),
        *optional("list", "namespaces", "resolve namespaceSelector in pod affinities"),
        *optional("list", "jobs.batch", "estimate how much longer Jobs will run"),
        *optional("list", storage, "protect the last healthy replica of a volume"),
        *optional("list", "cephclusters.ceph.rook.io", "wait until Ceph is healthy"),
    )


def apply_rights(lock_namespace: str, policy: Policy = _DEFAULT_POLICY) -> tuple[Right, ...]:
    events = partial(_rights, namespace=_EVENTS_NAMESPACE, optional=True)
    controllers = "replicasets.apps statefulsets.apps"
    restart = _rights(
        "get list patch", "deployments.apps", "restart Deployments instead of evicting their pods"
    )
    patch_status = Right(
        verb="patch",
        group="",
        resource="nodes",
        subresource="status",
        purpose="set the lifecycle conditions of Nodes",
        optional=True,
    )
    return (
        *plan_rights(),
        *_rights("watch", "nodes", "see when nodes are Ready again"),
        *_rights("patch", "nodes", "cordon, uncordon and annotate"),
        *([patch_status] if policy.courtesy.conditions else []),
        *_rights("get", "pods", "check the UID of a pod before its eviction"),
        *_rights("watch", "pods", "see when pods have terminated"),
        _pod_removal_right(policy),
        *(restart if policy.drain.restarts else ()),
        *_rights("get list", controllers, "check that evicted pods are replaced"),
        *_rights_to_stored_objects(lock_namespace),
        *_rights(
            "watch",
            "poddisruptionbudgets.policy",
            "see when a budget allows evictions again",
            optional=True,
        ),
        *events("create", "events", "report what happens to a Node"),
        *events("patch", "events", "update these Events"),
        *map(_health_right, policy.gates.healthy),
    )


def _rights_to_stored_objects(namespace: str) -> tuple[Right, ...]:
    stored = partial(_rights, namespace=namespace)
    optional = partial(stored, optional=True)
    record = marks.RECORD_NAME
    memory = marks.MEMORY_NAME
    slots = marks.SLOTS_NAME
    evidence = marks.EVIDENCE_NAME
    return (
        *stored(
            "get create update",
            "leases.coordination.k8s.io",
            "allow only one rollout at a time",
            name=record,
        ),
        *stored(
            "get create update delete",
            "configmaps",
            "store the rollout, so that any machine can resume it",
            name=record,
        ),
        *stored("get", "configmaps", _MEMORY_PURPOSE, name=memory),
        *optional(
            "update",
            "configmaps",
            "store failures, holds and pauses for later rollouts",
            name=memory,
        ),
        *optional("get", "configmaps", "know which hosts hold FleetLock slots", name=slots),
        *optional("update", "configmaps", "reserve and release FleetLock slots", name=slots),
        *optional("get", "configmaps", "know what other clusters have verified", name=evidence),
    )


def _pod_removal_right(policy: Policy) -> Right:
    if policy.drain.disable_eviction:
        purpose = "delete pods, bypassing their PodDisruptionBudgets"
        return Right(verb="delete", group="", resource="pods", purpose=purpose)
    return Right(
        verb="create", group="", resource="pods", subresource="eviction", purpose="evict pods"
    )


def _health_right(rule: HealthRule) -> Right:
    health_object = ObjectReference.parse(rule.resource)
    return Right(
        verb="get",
        group=health_object.group,
        resource=health_object.plural,
        namespace=health_object.namespace,
        name=health_object.name,
        purpose="check whether the object is healthy (gates.healthy)",
    )


def operate_rights(lock_namespace: str, policy: Policy = _DEFAULT_POLICY) -> tuple[Right, ...]:
    # Only `abort` writes FleetLock's slots.
    unused = {_RightKey("update", "configmaps", marks.SLOTS_NAME)}
    return _without(unused, apply_rights(lock_namespace, policy))


def fleetlock_rights(lock_namespace: str, policy: Policy = _DEFAULT_POLICY) -> tuple[Right, ...]:
    """A FleetLock server keeps no record, and estimates nothing."""
    unused = {
        _RightKey("update", "configmaps", marks.RECORD_NAME),
        _RightKey("delete", "configmaps", marks.RECORD_NAME),
        _RightKey("get", "configmaps", marks.EVIDENCE_NAME),
        _RightKey("list", "jobs", ""),
    }
    return _without(unused, apply_rights(lock_namespace, policy))


def _without(unused: Collection[_RightKey], rights: Iterable[Right]) -> tuple[Right, ...]:
    return tuple(
        right for right in rights if _RightKey(right.verb, right.resource, right.name) not in unused
    )
