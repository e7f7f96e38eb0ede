"""What kinds of objects the lab serves, and under which names.

One table, so that routing, discovery (below), rights and the store cannot disagree about a
resource.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

_ALL_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One kind of object; the constants below are the only instances, so identity is equality."""

    group: str
    plural: str
    kind: str
    short_name: str = ""
    subresources: tuple[str, ...] = ("status",)
    namespaced: bool = True
    verbs: tuple[str, ...] = _ALL_VERBS
    version: str = "v1"

    @property
    def api_version(self) -> str:
        """`v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """How error messages name it: `pods`, `daemonsets.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


# A part of an object with an address of its own, and what can be done there.
SUBRESOURCES: Final = {
    "eviction": ("create",),
    "scale": ("get", "patch", "update"),
    "status": ("get", "patch", "update"),
}
_SCALED: Final = ("scale", "status")
# Kinds of the bodies that some of these parts have, whichever object they belong to.
_BODIES: Final = {
    "eviction": {"group": "policy", "version": "v1", "kind": "Eviction"},
    "scale": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
}
_RBAC = "rbac.authorization.k8s.io"
NODES = Resource("", "nodes", "Node", "no", namespaced=False)
NAMESPACES = Resource("", "namespaces", "Namespace", "ns", namespaced=False)
PODS = Resource("", "pods", "Pod", "po", ("eviction", "status"))
VOLUMES = Resource("", "persistentvolumes", "PersistentVolume", "pv", namespaced=False)
CLAIMS = Resource("", "persistentvolumeclaims", "PersistentVolumeClaim", "pvc")
EVENTS = Resource("", "events", "Event", "ev", subresources=())
CONFIGMAPS = Resource("", "configmaps", "ConfigMap", "cm", subresources=())
SECRETS = Resource("", "secrets", "Secret", subresources=())
SERVICES = Resource("", "services", "Service", "svc")
LEASES = Resource("coordination.k8s.io", "leases", "Lease", subresources=())
DAEMONSETS = Resource("apps", "daemonsets", "DaemonSet", "ds")
REPLICASETS = Resource("apps", "replicasets", "ReplicaSet", "rs", _SCALED)
DEPLOYMENTS = Resource("apps", "deployments", "Deployment", "deploy", _SCALED)
STATEFULSETS = Resource("apps", "statefulsets", "StatefulSet", "sts", _SCALED)
JOBS = Resource("batch", "jobs", "Job")
BUDGETS = Resource("policy", "poddisruptionbudgets", "PodDisruptionBudget", "pdb")
VOLUMEATTACHMENTS = Resource(
    "storage.k8s.io", "volumeattachments", "VolumeAttachment", namespaced=False
)
# What a manifest has beside a workload. It is kept, and nothing comes of it: who may do what a
# scenario says, and no CronJob starts a Job.
SERVICE_ACCOUNTS = Resource("", "serviceaccounts", "ServiceAccount", "sa", subresources=())
CRON_JOBS = Resource("batch", "cronjobs", "CronJob", "cj")
NETWORK_POLICIES = Resource(
    "networking.k8s.io", "networkpolicies", "NetworkPolicy", "netpol", subresources=()
)
ROLES = Resource(_RBAC, "roles", "Role", subresources=())
ROLE_BINDINGS = Resource(_RBAC, "rolebindings", "RoleBinding", subresources=())
CLUSTER_ROLES = Resource(_RBAC, "clusterroles", "ClusterRole", subresources=(), namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(
    _RBAC, "clusterrolebindings", "ClusterRoleBinding", subresources=(), namespaced=False
)
# Of storage that runs on the cluster's own nodes; a test, or whoever plays with the lab, plays its
# operator.
REPLICAS = Resource("longhorn.io", "replicas", "Replica", version="v1beta2")
LONGHORN_SETTINGS = Resource(
    "longhorn.io", "settings", "Setting", subresources=(), version="v1beta2"
)
CEPH_CLUSTERS = Resource("ceph.rook.io", "cephclusters", "CephCluster")
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    subresources=(),
    namespaced=False,
    verbs=("create",),
)

# All of the above; the reviews are answered, not stored.
SERVED: Final = tuple(value for value in tuple(globals().values()) if isinstance(value, Resource))
STORED: Final = tuple(resource for resource in SERVED if resource is not ACCESS_REVIEWS)

VERSION: Final = {"major": "1", "minor": "36", "gitVersion": "v1.36.2", "platform": "linux/amd64"}


_FIXED: Final[dict[str, dict[str, Any]]] = {
    "/version": VERSION,
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
}


def discovery(path: str) -> dict[str, Any] | None:
    """How clients find out what is served: `/version`, `/api`, `/apis` and what lies below; None for other paths."""
    if path in _FIXED:
        return _FIXED[path]
    match path.split("/"):
        case ["", "apis"]:
            groups = {resource.group: resource.version for resource in SERVED if resource.group}
            listed = [_group(name, version) for name, version in groups.items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        case ["", "api", version]:
            return resource_list("", version)
        case ["", "apis", group, version]:
            return resource_list(group, version)
        case ["", "openapi", "v3", *below]:
            return _openapi(below)
        case _:
            return None


def _group(name: str, served: str) -> dict[str, Any]:
    version = {"groupVersion": f"{name}/{served}", "version": served}
    return {"name": name, "versions": [version], "preferredVersion": version}


def resource_list(group: str, version: str) -> dict[str, Any] | None:
    """Return what a version of a group has; None where there is no such version."""
    api_version = f"{group}/{version}" if group else version
    served = [resource for resource in SERVED if resource.api_version == api_version]
    if not served:
        return None
    listed = [
        entry
        for resource in sorted(served, key=lambda one: one.plural)
        for entry in _entries(resource)
    ]
    versioned = {"apiVersion": "v1"} if group else {}
    return {
        "kind": "APIResourceList",
        **versioned,
        "groupVersion": api_version,
        "resources": listed,
    }


def _entries(resource: Resource) -> Iterable[dict[str, Any]]:
    yield {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
        **({"shortNames": [resource.short_name]} if resource.short_name else {}),
    }
    for part in resource.subresources:
        named = {
            "name": f"{resource.plural}/{part}",
            "singularName": "",
            "namespaced": resource.namespaced,
        }
        of_body = _BODIES.get(part, {"kind": resource.kind})
        yield {**named, **of_body, "verbs": list(SUBRESOURCES[part])}


def _openapi(path: list[str]) -> dict[str, Any]:
    """Where the document of each version is, which is one: the least that leaves validation to the server."""
    if not path:
        versions = (resource.api_version for resource in SERVED)
        paths = (f"apis/{version}" if "/" in version else f"api/{version}" for version in versions)
        return {"paths": {path: {"serverRelativeURL": "/openapi/v3/all"} for path in paths}}
    info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
    patched = {
        f"/{resource.qualified}/{{name}}": {"patch": _openapi_patch(resource)}
        for resource in SERVED
    }
    return {"openapi": "3.0.0", "info": info, "paths": patched}


def _openapi_patch(resource: Resource) -> dict[str, Any]:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string"}}
        for name in ("dryRun", "fieldValidation")
    ]
    return {"parameters": parameters, "responses": {}, "x-kubernetes-group-version-kind": kind}
