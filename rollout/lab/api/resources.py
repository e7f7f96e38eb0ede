"""What kinds of objects the lab serves, and under which names.

One table, so that routing, discovery, rights and the store cannot disagree about a resource.
"""

from dataclasses import dataclass

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
NAMESPACE_VERBS = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")


@dataclass(frozen=True, slots=True)
class Subresource:
    """A part of an object with an address of its own; group and kind are those of its body."""

    name: str
    kind: str
    verbs: tuple[str, ...] = ("get", "patch", "update")
    group: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One kind of object; the constants below are the only instances, so identity is equality."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS

    @property
    def api_version(self) -> str:
        """`v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        """`pod`, `poddisruptionbudget`."""
        return self.kind.lower()

    @property
    def qualified(self) -> str:
        """How error messages name it: `pods`, `daemonsets.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def subresource(self, name: str) -> Subresource | None:
        """The subresource of that name, if this resource has it."""
        return next((each for each in self.subresources if each.name == name), None)


def _status(kind: str) -> Subresource:
    return Subresource("status", kind)


def _scale() -> Subresource:
    return Subresource("scale", "Scale", group="autoscaling", version="v1")


def _apps(plural: str, kind: str, short: str, *, scalable: bool = True) -> Resource:
    subresources = (*((_scale(),) if scalable else ()), _status(kind))
    return Resource("apps", "v1", plural, kind, True, (short,), ("all",), subresources)


NODES = Resource("", "v1", "nodes", "Node", namespaced=False, short_names=("no",), subresources=(_status("Node"),))
NAMESPACES = Resource(
    "",
    "v1",
    "namespaces",
    "Namespace",
    namespaced=False,
    short_names=("ns",),
    subresources=(Subresource("finalize", "Namespace", ("update",)), _status("Namespace")),
    verbs=NAMESPACE_VERBS,
)
PODS = Resource(
    "",
    "v1",
    "pods",
    "Pod",
    namespaced=True,
    short_names=("po",),
    categories=("all",),
    subresources=(
        Subresource("binding", "Binding", ("create",)),
        Subresource("eviction", "Eviction", ("create",), "policy", "v1"),
        _status("Pod"),
    ),
)
VOLUMES = Resource(
    "",
    "v1",
    "persistentvolumes",
    "PersistentVolume",
    namespaced=False,
    short_names=("pv",),
    subresources=(_status("PersistentVolume"),),
)
CLAIMS = Resource(
    "",
    "v1",
    "persistentvolumeclaims",
    "PersistentVolumeClaim",
    namespaced=True,
    short_names=("pvc",),
    subresources=(_status("PersistentVolumeClaim"),),
)
EVENTS = Resource("", "v1", "events", "Event", namespaced=True, short_names=("ev",))
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, short_names=("cm",))
SECRETS = Resource("", "v1", "secrets", "Secret", namespaced=True)
SERVICES = Resource(
    "",
    "v1",
    "services",
    "Service",
    namespaced=True,
    short_names=("svc",),
    categories=("all",),
    subresources=(_status("Service"),),
)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
DAEMONSETS = _apps("daemonsets", "DaemonSet", "ds", scalable=False)
REPLICASETS = _apps("replicasets", "ReplicaSet", "rs")
DEPLOYMENTS = _apps("deployments", "Deployment", "deploy")
STATEFULSETS = _apps("statefulsets", "StatefulSet", "sts")
JOBS = Resource("batch", "v1", "jobs", "Job", namespaced=True, categories=("all",), subresources=(_status("Job"),))
BUDGETS = Resource(
    "policy",
    "v1",
    "poddisruptionbudgets",
    "PodDisruptionBudget",
    namespaced=True,
    short_names=("pdb",),
    subresources=(_status("PodDisruptionBudget"),),
)
VOLUMEATTACHMENTS = Resource(
    "storage.k8s.io",
    "v1",
    "volumeattachments",
    "VolumeAttachment",
    namespaced=False,
    subresources=(_status("VolumeAttachment"),),
)
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
    verbs=("create",),
)

STORED = (
    CONFIGMAPS,
    EVENTS,
    NAMESPACES,
    NODES,
    CLAIMS,
    VOLUMES,
    PODS,
    SECRETS,
    SERVICES,
    DAEMONSETS,
    DEPLOYMENTS,
    REPLICASETS,
    STATEFULSETS,
    JOBS,
    LEASES,
    BUDGETS,
    VOLUMEATTACHMENTS,
)
SERVED = (*STORED, ACCESS_REVIEWS)
