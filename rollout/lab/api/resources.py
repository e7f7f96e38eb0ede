"""What kinds of objects the lab serves, and under which names.

One table, so that routing, discovery (below), rights and the store cannot disagree about a resource.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

ALL_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")


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
        """Return the subresource of that name, if this resource has it."""
        return next((resource for resource in self.subresources if resource.name == name), None)


_RBAC = "rbac.authorization.k8s.io"
_EVICTION = Subresource("eviction", "Eviction", ("create",), "policy", "v1")


def _resource(
    group: str,
    plural: str,
    kind: str,
    short: str = "",
    subresources: tuple[Subresource, ...] = (),
    *,
    status: bool = True,
    namespaced: bool = True,
    verbs: tuple[str, ...] = ALL_VERBS,
) -> Resource:
    """Describe a resource; the subresource for its status comes last, as in discovery."""
    parts = (*subresources, *((Subresource("status", kind),) if status else ()))
    return Resource(group, "v1", plural, kind, namespaced, (short,) if short else (), parts, verbs)


NODES = _resource("", "nodes", "Node", "no", namespaced=False)
NAMESPACES = _resource("", "namespaces", "Namespace", "ns", namespaced=False)
PODS = _resource("", "pods", "Pod", "po", (_EVICTION,))
VOLUMES = _resource("", "persistentvolumes", "PersistentVolume", "pv", namespaced=False)
CLAIMS = _resource("", "persistentvolumeclaims", "PersistentVolumeClaim", "pvc")
EVENTS = _resource("", "events", "Event", "ev", status=False)
CONFIGMAPS = _resource("", "configmaps", "ConfigMap", "cm", status=False)
SECRETS = _resource("", "secrets", "Secret", status=False)
SERVICES = _resource("", "services", "Service", "svc")
LEASES = _resource("coordination.k8s.io", "leases", "Lease", status=False)
DAEMONSETS = _resource("apps", "daemonsets", "DaemonSet", "ds")
REPLICASETS = _resource("apps", "replicasets", "ReplicaSet", "rs")
DEPLOYMENTS = _resource("apps", "deployments", "Deployment", "deploy")
STATEFULSETS = _resource("apps", "statefulsets", "StatefulSet", "sts")
JOBS = _resource("batch", "jobs", "Job")
BUDGETS = _resource("policy", "poddisruptionbudgets", "PodDisruptionBudget", "pdb")
VOLUMEATTACHMENTS = _resource("storage.k8s.io", "volumeattachments", "VolumeAttachment", namespaced=False)
# What a manifest has beside a workload. It is kept, and nothing comes of it: who may do what a scenario says, and no
# CronJob starts a Job.
SERVICE_ACCOUNTS = _resource("", "serviceaccounts", "ServiceAccount", "sa", status=False)
CRON_JOBS = _resource("batch", "cronjobs", "CronJob", "cj")
NETWORK_POLICIES = _resource("networking.k8s.io", "networkpolicies", "NetworkPolicy", "netpol", status=False)
ROLES = _resource(_RBAC, "roles", "Role", status=False)
ROLE_BINDINGS = _resource(_RBAC, "rolebindings", "RoleBinding", status=False)
CLUSTER_ROLES = _resource(_RBAC, "clusterroles", "ClusterRole", status=False, namespaced=False)
CLUSTER_ROLE_BINDINGS = _resource(_RBAC, "clusterrolebindings", "ClusterRoleBinding", status=False, namespaced=False)
ACCESS_REVIEWS = _resource(
    "authorization.k8s.io",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    status=False,
    namespaced=False,
    verbs=("create",),
)

# All of the above; the reviews are answered, not stored.
SERVED: Final = tuple(value for value in tuple(globals().values()) if isinstance(value, Resource))
STORED: Final = tuple(resource for resource in SERVED if resource is not ACCESS_REVIEWS)

VERSION: Final = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2",
    "platform": "linux/amd64",
}


_FIXED: Final[dict[str, dict[str, Any]]] = {"/version": VERSION, "/api": {"kind": "APIVersions", "versions": ["v1"]}}


def discovered(path: str) -> dict[str, Any] | None:
    """How clients find out what is served: `/version`, `/api`, `/apis` and what lies below; None for other paths."""
    if path in _FIXED:
        return _FIXED[path]
    match path.split("/"):
        case ["", "apis"]:
            groups = dict.fromkeys(resource.group for resource in SERVED if resource.group)
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in groups]}
        case ["", "api", version]:
            return resource_list("", version)
        case ["", "apis", group, version]:
            return resource_list(group, version)
        case ["", "openapi", "v3", *below]:
            return _openapi(below)
        case _:
            return None


def _group(name: str) -> dict[str, Any]:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def resource_list(group: str, version: str) -> dict[str, Any] | None:
    """Return what a version of a group has; None where there is no such version."""
    served = [resource for resource in SERVED if (resource.group, resource.version) == (group, version)]
    if not served:
        return None
    listed = [entry for resource in sorted(served, key=_plural) for entry in _entries(resource)]
    versioned = {"apiVersion": "v1", "groupVersion": f"{group}/{version}"} if group else {"groupVersion": version}
    return {"kind": "APIResourceList", **versioned, "resources": listed}


def _plural(resource: Resource) -> str:
    return resource.plural


def _entries(resource: Resource) -> Iterable[dict[str, Any]]:
    yield {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
        **({"shortNames": list(resource.short_names)} if resource.short_names else {}),
    }
    for part in resource.subresources:
        foreign = {"group": part.group, "version": part.version} if part.group else {}
        named = {"name": f"{resource.plural}/{part.name}", "singularName": "", "namespaced": resource.namespaced}
        yield {**named, **foreign, "kind": part.kind, "verbs": list(part.verbs)}


def _openapi(path: list[str]) -> dict[str, Any] | None:
    """Where the document of each version is, and the documents: the least that leaves validation to the server."""
    if not path:
        versions = dict.fromkeys(resource.api_version for resource in SERVED)
        paths = [f"api/{version}" if "/" not in version else f"apis/{version}" for version in versions]
        return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}
    patched = {}
    for resource in SERVED:
        if resource.api_version == "/".join(path[1:]) and "patch" in resource.verbs:
            place = "/namespaces/{namespace}" if resource.namespaced else ""
            patched[f"/{'/'.join(path)}{place}/{resource.plural}/{{name}}"] = _openapi_patch(resource)
    info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": patched} if patched else None


def _openapi_patch(resource: Resource) -> dict[str, Any]:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in ("dryRun", "fieldValidation")]
    return {"patch": {"parameters": parameters, "responses": {}, "x-kubernetes-group-version-kind": kind}}
