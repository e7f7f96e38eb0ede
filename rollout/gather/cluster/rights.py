"""What this user may do, asked of the API server itself: before the first node is touched, not half-way."""

from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from rollout.gather.cluster import decode
from rollout.model import marks
from rollout.ports import ClusterApi

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_AT_ONCE = 8
# Events of objects that are in no namespace stand in this one.
_OF_NODES = "default"


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource. `group` is empty for the core API, `namespace` empty for all of them.

    `name` is the one object that is meant: whoever may do it to that one alone has the right. Creating cannot be
    limited to a name. Without an `optional` right the work can be done, less well: `purpose` says what it is for.
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


class _Verdict(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Verdict


def allowed(api: ClusterApi, right: Right) -> bool:
    """Whether this user has it; `ApiError` where the server does not say."""
    fields = ("verb", "group", "resource", "subresource", "namespace", "name")
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {name: value for name in fields if (value := getattr(right, name))}},
    }
    return decode.decode(api.create(REVIEWS, body), _Review, REVIEWS).status.allowed


def _once(question: Callable[[], bool]) -> bool:
    return question()


def missing_rights(
    api: ClusterApi, needs: Iterable[Right], *, ask: Callable[[Callable[[], bool]], bool] = _once
) -> tuple[Right, ...]:
    """Those of `needs` that this user has not, in their order; optional ones among them.

    `ask` calls one question: with patience, where a single failure among many must not spoil all.
    """
    distinct = tuple(dict.fromkeys(needs))
    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="rights") as pool:
        answers = pool.map(lambda right: ask(lambda: allowed(api, right)), distinct)
        return tuple(right for right, has in zip(distinct, answers, strict=True) if not has)


def status_rights() -> tuple[Right, ...]:
    """Return what showing the nodes takes."""
    return (
        Right("get", "", "nodes", purpose="see the nodes"),
        Right("list", "", "nodes", purpose="see the nodes"),
    )


def plan_rights() -> tuple[Right, ...]:
    """Return what planning takes."""
    return (
        *status_rights(),
        Right("list", "", "pods", purpose="see what would have to move"),
        Right("get", "", "namespaces", "", "kube-system", "kube-system", purpose="tell this cluster from others"),
        Right("list", "policy", "poddisruptionbudgets", purpose="keep disruption budgets"),
        Right("list", "apps", "daemonsets", purpose="know which pods stay"),
        Right("list", "storage.k8s.io", "volumeattachments", purpose="wait for volumes", optional=True),
        Right("list", "apps", "deployments", purpose="see other reboot coordinators", optional=True),
        Right("list", "upgrade.cattle.io", "plans", purpose="see what the upgrade controller is to do", optional=True),
        Right("list", "", "persistentvolumes", purpose="know which nodes volumes attach to", optional=True),
        Right("list", "", "namespaces", purpose="know which namespaces affinities choose by labels", optional=True),
    )


def apply_rights(lease_namespace: str, *, disable_eviction: bool = False) -> tuple[Right, ...]:
    """List what a rollout takes: planning, acting on nodes and pods, its Lease and ConfigMap in that namespace."""
    return (
        *plan_rights(),
        Right("watch", "", "nodes", purpose="see nodes come back"),
        Right("patch", "", "nodes", purpose="cordon, uncordon and annotate"),
        Right("get", "", "pods", purpose="know a pod by its identity before it is evicted"),
        Right("watch", "", "pods", purpose="see pods leave"),
        _removal(disable_eviction=disable_eviction),
        *(
            Right(verb, "apps", resource, purpose="see that moved pods run again")
            for resource in ("replicasets", "statefulsets")
            for verb in ("get", "list")
        ),
        *(
            Right(verb, "coordination.k8s.io", "leases", "", lease_namespace, name, purpose="one rollout at a time")
            for verb, name in _on_one(("get", "create", "update"))
        ),
        *(
            Right(verb, "", "configmaps", "", lease_namespace, name, purpose="be resumable from any machine")
            for verb, name in _on_one(("get", "create", "update", "delete"))
        ),
        *(
            Right(verb, "", "configmaps", "", lease_namespace, marks.MEMORY_NAME, purpose=purpose, optional=True)
            for verb, purpose in (
                ("get", "know which versions are held, and which nodes failed, in earlier rollouts"),
                ("update", "remember that for later rollouts"),
            )
        ),
        *(
            Right(verb, "", "configmaps", "", lease_namespace, marks.SLOTS_NAME, purpose=purpose, optional=True)
            for verb, purpose in (
                ("get", "know which hosts hold slots of FleetLock"),
                ("update", "grant such slots, and take them away"),
            )
        ),
        Right(
            *("get", "", "configmaps", "", lease_namespace, marks.EVIDENCE_NAME),
            purpose="know what other clusters have proved",
            optional=True,
        ),
        Right("watch", "policy", "poddisruptionbudgets", purpose="see when a budget allows again", optional=True),
        *(
            Right(verb, "", "events", namespace=_OF_NODES, purpose=purpose, optional=True)
            for verb, purpose in (
                ("create", "report on the Node what happens to it"),
                ("patch", "update these reports"),
            )
        ),
    )


def operate_rights(lease_namespace: str, *, disable_eviction: bool = False) -> tuple[Right, ...]:
    """Return what an operating process takes: a rollout's rights, but for what people alone do beside it."""
    # `abort` frees slots
    return _without(
        {("update", "configmaps", marks.SLOTS_NAME)}, apply_rights(lease_namespace, disable_eviction=disable_eviction)
    )


def fleetlock_rights(lease_namespace: str, *, disable_eviction: bool = False) -> tuple[Right, ...]:
    """Return what a FleetLock server takes: a rollout's rights, but for writing its record."""
    of_record = {(verb, "configmaps", marks.LEASE_NAME) for verb in ("update", "delete")}
    of_operate = {("get", "configmaps", marks.EVIDENCE_NAME)}
    return _without(of_record | of_operate, apply_rights(lease_namespace, disable_eviction=disable_eviction))


def _without(unused: Collection[tuple[str, str, str]], rights: Iterable[Right]) -> tuple[Right, ...]:
    return tuple(right for right in rights if (right.verb, right.resource, right.name) not in unused)


def _on_one(verbs: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each verb with the name of the one Lease, or ConfigMap, that it is for."""
    return ((verb, "" if verb == "create" else marks.LEASE_NAME) for verb in verbs)


def _removal(*, disable_eviction: bool) -> Right:
    if disable_eviction:
        return Right("delete", "", "pods", purpose="delete pods, ignoring their budgets")
    return Right("create", "", "pods", subresource="eviction", purpose="evict pods")
