"""What this user may do, asked of the API server itself: before the first node is touched, not half-way."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from rollout.gather.cluster import decode, wire
from rollout.model import marks
from rollout.ports import ClusterApi
from rollout.threads import side_by_side

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_AT_ONCE = 8
# Events of objects that are in no namespace stand in this one.
_OF_NODES = "default"


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource. `group` is empty for the core API, `namespace` empty for all of them.

    `name` is the one object that is meant: whoever may do it to that one alone has the right.
    Creating cannot be limited to a name. Without an `optional` right the work can be done, less
    well: `purpose` says what it is for.
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
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        meant = f" {self.name}" if self.name else ""
        within = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {resource}{f'.{self.group}' if self.group else ''}{meant}{within}"


class _ReviewStatus(wire.Wire, frozen=True):
    allowed: bool = False


class _Review(wire.Wire, frozen=True):
    status: _ReviewStatus


def has_right(api: ClusterApi, right: Right) -> bool:
    """Whether this user has it; `ApiError` where the server does not say."""
    fields = ("verb", "group", "resource", "subresource", "namespace", "name")
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                name: value for name in fields if (value := getattr(right, name))
            }
        },
    }
    return decode.decode(api.create(REVIEWS, body), _Review, REVIEWS).status.allowed


def missing_rights(needs: Iterable[Right], ask: Callable[[Right], bool]) -> tuple[Right, ...]:
    """Those of `needs` that this user has not, in their order; optional ones among them.

    `ask` is `has_right`: with patience, where a single failure among many must not spoil all.
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
    """Each of the verbs on each of the resources; of those on one object, creating is on none by name."""
    for resource in resources.split():
        for verb in verbs.split():
            yield Right(
                verb,
                group,
                resource,
                "",
                namespace,
                "" if verb == "create" else name,
                purpose,
                optional,
            )


def plan_rights() -> tuple[Right, ...]:
    """Return what planning takes."""
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
    """List what a rollout takes: planning, acting on nodes and pods, its Lease and ConfigMap in that namespace."""
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
            namespace=_OF_NODES,
            optional=True,
        ),
        *_all("patch", "", "events", "update these reports", namespace=_OF_NODES, optional=True),
    )


def operate_rights(lease_namespace: str, *, disable_eviction: bool = False) -> tuple[Right, ...]:
    """Return what an operating process takes: a rollout's rights, but for what people alone do beside it."""
    # `abort` frees slots
    return _without(
        {("update", "configmaps", marks.SLOTS_NAME)},
        apply_rights(lease_namespace, disable_eviction=disable_eviction),
    )


def fleetlock_rights(lease_namespace: str, *, disable_eviction: bool = False) -> tuple[Right, ...]:
    """Return what a FleetLock server takes: a rollout's rights, but for writing its record."""
    of_record = {(verb, "configmaps", marks.LEASE_NAME) for verb in ("update", "delete")}
    of_operate = {("get", "configmaps", marks.EVIDENCE_NAME)}
    return _without(
        of_record | of_operate, apply_rights(lease_namespace, disable_eviction=disable_eviction)
    )


def _without(
    unused: Collection[tuple[str, str, str]], rights: Iterable[Right]
) -> tuple[Right, ...]:
    return tuple(
        right for right in rights if (right.verb, right.resource, right.name) not in unused
    )
