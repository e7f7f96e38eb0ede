"""What kinds of objects the lab serves, and under which names.

One table, so that routing, discovery, rights and the store cannot disagree about a resource.
"""

from dataclasses import dataclass

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
    listed: bool = False,
    verbs: tuple[str, ...] = ALL_VERBS,
) -> Resource:
    """`listed` is whether `kubectl get all` shows it; the subresource for its status comes last, as in discovery."""
    parts = (*subresources, *((Subresource("status", kind),) if status else ()))
    categories = ("all",) if listed else ()
    return Resource(group, "v1", plural, kind, namespaced, (short,) if short else (), categories, parts, verbs)


NODES = _resource("", "nodes", "Node", "no", namespaced=False)
NAMESPACES = _resource("", "namespaces", "Namespace", "ns", namespaced=False)
PODS = _resource("", "pods", "Pod", "po", (_EVICTION,), listed=True)
VOLUMES = _resource("", "persistentvolumes", "PersistentVolume", "pv", namespaced=False)
CLAIMS = _resource("", "persistentvolumeclaims", "PersistentVolumeClaim", "pvc")
EVENTS = _resource("", "events", "Event", "ev", status=False)
CONFIGMAPS = _resource("", "configmaps", "ConfigMap", "cm", status=False)
SECRETS = _resource("", "secrets", "Secret", status=False)
SERVICES = _resource("", "services", "Service", "svc", listed=True)
LEASES = _resource("coordination.k8s.io", "leases", "Lease", status=False)
DAEMONSETS = _resource("apps", "daemonsets", "DaemonSet", "ds", listed=True)
REPLICASETS = _resource("apps", "replicasets", "ReplicaSet", "rs", listed=True)
DEPLOYMENTS = _resource("apps", "deployments", "Deployment", "deploy", listed=True)
STATEFULSETS = _resource("apps", "statefulsets", "StatefulSet", "sts", listed=True)
JOBS = _resource("batch", "jobs", "Job", listed=True)
BUDGETS = _resource("policy", "poddisruptionbudgets", "PodDisruptionBudget", "pdb")
VOLUMEATTACHMENTS = _resource("storage.k8s.io", "volumeattachments", "VolumeAttachment", namespaced=False)
# What a manifest has beside a workload. It is kept, and nothing comes of it: who may do what a scenario says, and no
# CronJob starts a Job.
SERVICE_ACCOUNTS = _resource("", "serviceaccounts", "ServiceAccount", "sa", status=False)
CRON_JOBS = _resource("batch", "cronjobs", "CronJob", "cj", listed=True)
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
    SERVICE_ACCOUNTS,
    CRON_JOBS,
    NETWORK_POLICIES,
    ROLES,
    ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
)
SERVED = (*STORED, ACCESS_REVIEWS)
