from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

_ALL_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")


class Resource(Struct, frozen=True, eq=False):
    """Only the constants below exist, so identity is equality."""

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
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """As in error messages: `pods`, `daemonsets.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


SUBRESOURCES: Final = {
    "eviction": ("create",),
    "scale": ("get", "patch", "update"),
    "status": ("get", "patch", "update"),
}
_SCALED: Final = ("scale", "status")
_BODIES: Final = {
    "eviction": {"group": "policy", "version": "v1", "kind": "Eviction"},
    "scale": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
}
_RBAC = "rbac.authorization.k8s.io"
NODES = Resource("", "nodes", "Node", "no", namespaced=False)
NAMESPACES = Resource("", "namespaces", "Namespace", "ns", namespaced=False)
PODS = Resource("", plural="pods", kind="Pod", short_name="po", subresources=("eviction", "status"))
VOLUMES = Resource("", "persistentvolumes", "PersistentVolume", "pv", namespaced=False)
CLAIMS = Resource("", "persistentvolumeclaims", "PersistentVolumeClaim", "pvc")
EVENTS = Resource("", "events", "Event", "ev", subresources=())
CONFIGMAPS = Resource("", "configmaps", "ConfigMap", "cm", subresources=())
SECRETS = Resource("", "secrets", "Secret", subresources=())
SERVICES = Resource("", "services", "Service", "svc")
LEASES = Resource("coordination.k8s.io", "leases", "Lease", subresources=())
DAEMONSETS = Resource("apps", "daemonsets", "DaemonSet", "ds")
REPLICASETS = Resource(
    "apps", plural="replicasets", kind="ReplicaSet", short_name="rs", subresources=_SCALED
)
DEPLOYMENTS = Resource(
    "apps", plural="deployments", kind="Deployment", short_name="deploy", subresources=_SCALED
)
STATEFULSETS = Resource(
    "apps", plural="statefulsets", kind="StatefulSet", short_name="sts", subresources=_SCALED
)
JOBS = Resource("batch", "jobs", "Job")
BUDGETS = Resource("policy", "poddisruptionbudgets", "PodDisruptionBudget", "pdb")
VOLUMEATTACHMENTS = Resource(
    "storage.k8s.io", "volumeattachments", "VolumeAttachment", namespaced=False
)
# Only stored: the lab knows no RBAC, and no CronJob starts a Job.
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
# Storage that runs on the nodes; tests act as its operator.
REPLICAS = Resource("longhorn.io", "replicas", "Replica", version="v1beta2")
LONGHORN_SETTINGS = Resource(
    "longhorn.io", "settings", "Setting", subresources=(), version="v1beta2"
)
CEPH_CLUSTERS = Resource("ceph.rook.io", "cephclusters", "CephCluster")
CLUSTERS = Resource("postgresql.cnpg.io", "clusters", "Cluster")
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    subresources=(),
    namespaced=False,
    verbs=("create",),
)

SERVED: Final = tuple(value for value in tuple(globals().values()) if isinstance(value, Resource))
STORED: Final = tuple(resource for resource in SERVED if resource is not ACCESS_REVIEWS)

VERSION: Final = {"major": "1", "minor": "36", "gitVersion": "v1.36.2", "platform": "linux/amd64"}


_FIXED: Final[dict[str, dict[str, Any]]] = {
    "/version": VERSION,
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
}


def discovery(path: str) -> dict[str, Any] | None:
    if path in _FIXED:
        return _FIXED[path]
    match path.split("/"):
        case ["", "apis", *below]:
            return _groups(below)
        case ["", "api", version]:
            return resource_list("", version)
        case ["", "openapi", "v3", *below]:
            return _openapi() if below else _openapi_paths()
        case _:
            return None


def _groups(below: list[str]) -> dict[str, Any] | None:
    groups = {resource.group: resource.version for resource in SERVED if resource.group}
    match below:
        case []:
            listed = [_group(name, version) for name, version in groups.items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        case [name] if name in groups:
            kind = {"kind": "APIGroup", "apiVersion": "v1"}
            return {**kind, **_group(name, groups[name])}
        case [group, version]:
            return resource_list(group, version)
        case _:
            return None


def _group(name: str, served: str) -> dict[str, Any]:
    version = {"groupVersion": f"{name}/{served}", "version": served}
    return {"name": name, "versions": [version], "preferredVersion": version}


def resource_list(group: str, version: str) -> dict[str, Any] | None:
    api_version = f"{group}/{version}" if group else version
    served = [resource for resource in SERVED if resource.api_version == api_version]
    if not served:
        return None
    entries: list[dict[str, Any]] = []
    for resource in sorted(served, key=lambda resource: resource.plural):
        entries += _discovery_entries(resource)
    body = {"kind": "APIResourceList", "groupVersion": api_version, "resources": entries}
    if group:
        body["apiVersion"] = "v1"
    return body


def _discovery_entries(resource: Resource) -> Iterable[dict[str, Any]]:
    entry = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_name:
        entry["shortNames"] = [resource.short_name]
    yield entry
    for subresource in resource.subresources:
        yield {
            "name": f"{resource.plural}/{subresource}",
            "singularName": "",
            "namespaced": resource.namespaced,
            **_BODIES.get(subresource, {"kind": resource.kind}),
            "verbs": list(SUBRESOURCES[subresource]),
        }


def _openapi_paths() -> dict[str, Any]:
    paths = {}
    for resource in SERVED:
        prefix = "apis" if resource.group else "api"
        url = {"serverRelativeURL": "/openapi/v3/all"}
        paths[f"{prefix}/{resource.api_version}"] = url
    return {"paths": paths}


def _openapi() -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string"}}
        for name in ("dryRun", "fieldValidation")
    ]
    paths = {}
    for resource in SERVED:
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        patch = {
            "parameters": parameters,
            "responses": {},
            "x-kubernetes-group-version-kind": kind,
        }
        paths[f"/{resource.qualified}/{{name}}"] = {"patch": patch}
    info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths}
