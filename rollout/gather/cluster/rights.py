"""The rights that rollout needs, and which of them this user lacks, by the API server's answer."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from rollout.gather.cluster import decode, wire
from rollout.model import marks
from rollout.ports import ClusterApi
from rollout.threads import side_by_side

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_AT_ONCE = 8
# Events about cluster-scoped objects are in this namespace.
_EVENTS_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource.

    `group` is empty for the core API, `namespace` for all namespaces, `name` for all objects.
    Creating cannot be limited to a name. `purpose` says what rollout needs the right for. Without
    an `optional` right rollout works, but knows less.
    """

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    purpose: str = ""
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


class _ReviewStatus(wire.Wire, frozen=True):
    allowed: bool = False


class _Review(wire.Wire, frozen=True):
    status: _ReviewStatus


def has_right(api: ClusterApi, right: Right) -> bool:
    """Return whether this user has a right; `ApiError` if the server does not answer."""
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


def missing_rights(needs: Iterable[Right], ask: Callable[[Right], bool]) -> tuple[Right, ...]:
    """Return the rights in `needs` that this user lacks, including optional ones.

    `ask` is `has_right`, perhaps with retries.
    """
    distinct = tuple(dict.fromkeys(needs))
    has = dict(side_by_side(distinct, ask, most=_AT_ONCE, name="rights"))
    return tuple(right for right in distinct if not has[right])


def _all(
    verbs: str,
    group: str,
    resources: str,
    purpose: str,
    *,
    namespace: str = "",
    name: str = "",
    optional: bool = False,
) -> Iterator[Right]:
    """Yield each of the verbs on each of the resources; both are separated by spaces."""
    for resource in resources.split():
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
    """Return the rights for planning."""
    cluster = "kube-system"
    seen = "know which namespaces affinities choose by labels"
    return (
        *_all("get list", "", "nodes", "see the nodes"),
        *_all("list", "", "pods", "see what would have to move"),
        *_all(
            "get",
            "",
            "namespaces",
            "tell this cluster from others",
            namespace=cluster,
            name=cluster,
        ),
        *_all("list", "policy", "poddisruptionbudgets", "keep disruption budgets"),
        *_all("list", "apps", "daemonsets", "know which pods stay"),
        *_all("list", "storage.k8s.io", "volumeattachments", "wait for volumes", optional=True),
        *_all("list", "apps", "deployments", "see other reboot coordinators", optional=True),
        *_all(
            "list",
            "upgrade.cattle.io",
            "plans",
            "see what the upgrade controller is to do",
            optional=True,
        ),
        *_all("list", "", "persistentvolumes", "know which nodes volumes attach to", optional=True),
        *_all("list", "", "namespaces", seen, optional=True),
        *_all(
            "list",
            "longhorn.io",
            "replicas settings",
            "spare the last healthy replica of a volume",
            optional=True,
        ),
        *_all("list", "ceph.rook.io", "cephclusters", "wait until Ceph is healthy", optional=True),
    )


def apply_rights(lease_namespace: str, *, disable_eviction: bool = False) -> tuple[Right, ...]:
    """Return the rights for a rollout whose Lease and ConfigMaps are in this namespace."""
    one = partial(_all, namespace=lease_namespace, name=marks.LEASE_NAME)
    other = partial(_all, namespace=lease_namespace, optional=True)
    memory = marks.MEMORY_NAME
    slots = marks.SLOTS_NAME
    return (
        *plan_rights(),
        *_all("watch", "", "nodes", "see nodes come back"),
        *_all("patch", "", "nodes", "cordon, uncordon and annotate"),
        *_all("get", "", "pods", "know a pod by its identity before it is evicted"),
        *_all("watch", "", "pods", "see pods leave"),
        (
            Right("delete", "", "pods", purpose="delete pods, ignoring their budgets")
            if disable_eviction
            else Right("create", "", "pods", subresource="eviction", purpose="evict pods")
        ),
        *_all("get list", "apps", "replicasets statefulsets", "see that moved pods run again"),
        *one("get create update", "coordination.k8s.io", "leases", "one rollout at a time"),
        *one("get create update delete", "", "configmaps", "be resumable from any machine"),
        *_all(
            verbs="get",
            group="",
            resources="configmaps",
            purpose="know which versions are held, which nodes failed, and what is paused",
            namespace=lease_namespace,
            name=memory,
        ),
        *other("update", "", "configmaps", "remember that for later rollouts", name=memory),
        *other("get", "", "configmaps", "know which hosts hold slots of FleetLock", name=slots),
        *other("update", "", "configmaps", "grant such slots, and take them away", name=slots),
        *other(
            "get",
            "",
            "configmaps",
            "know what other clusters have proved",
            name=marks.EVIDENCE_NAME,
        ),
        *_all(
            "watch",
            "policy",
            "poddisruptionbudgets",
            "see when a budget allows again",
            optional=True,
        ),
        *_all(
            "create",
            "",
            "events",
            "report on the Node what happens to it",
            namespace=_EVENTS_NAMESPACE,
            optional=True,
        ),
        *_all(
            "patch",
            "",
            "events",
            "update these reports",
            namespace=_EVENTS_NAMESPACE,
            optional=True,
        ),
    )


def operate_rights(lease_namespace: str, *, disable_eviction: bool = False) -> tuple[Right, ...]:
    """Return the rights for `operate`."""
    # Only `abort` writes FleetLock's slots.
    return _without(
        {("update", "configmaps", marks.SLOTS_NAME)},
        apply_rights(lease_namespace, disable_eviction=disable_eviction),
    )


def fleetlock_rights(lease_namespace: str, *, disable_eviction: bool = False) -> tuple[Right, ...]:
    """Return the rights for a FleetLock server, which writes no record and reads no evidence."""
    unused = {
        ("update", "configmaps", marks.LEASE_NAME),
        ("delete", "configmaps", marks.LEASE_NAME),
        ("get", "configmaps", marks.EVIDENCE_NAME),
    }
    return _without(unused, apply_rights(lease_namespace, disable_eviction=disable_eviction))


def _without(
    unused: Collection[tuple[str, str, str]], rights: Iterable[Right]
) -> tuple[Right, ...]:
    return tuple(
        right for right in rights if (right.verb, right.resource, right.name) not in unused
    )
