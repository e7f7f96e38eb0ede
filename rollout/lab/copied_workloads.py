"""Makes a copied cluster's controllers from their pods, with the first as template."""

import re
from collections import defaultdict
from collections.abc import Collection, Container, Mapping, Sequence
from typing import Any, Final

from rollout.gather.cluster.copying import ClusterCopy, CopiedPace
from rollout.lab.api.lifecycle import with_defaults
from rollout.lab.api.resources import (
    CLUSTERS,
    DAEMONSETS,
    DEPLOYMENTS,
    REPLICASETS,
    STATEFULSETS,
    Resource,
)
from rollout.lab.api.selectors import matches
from rollout.lab.api.store import Json, ObjectStore
from rollout.lab.objects import (
    LAB_PREFIX,
    Key,
    controller_of,
    is_finished,
    key,
    labels_of,
    name_of,
    namespace_of,
    spec_of,
    status_of,
    uid,
)
from rollout.lab.world.databases import SWITCHOVER
from rollout.lab.world.deployments import COPIED_HASH, TEMPLATE_HASH, replica_set_of
from rollout.lab.world.workloads import ORDINAL, owner_reference, replicas_of
from rollout.model.cluster import OwnerRef
from rollout.model.text import grouped
from rollout.planning.drain.budgets import SPILO
from rollout.planning.play.pace import HANDOVER_SECONDS

_ORDINAL: Final = re.compile(r"(.*-)\d+")
_CONTROLLED: Final[Mapping[str, Resource]] = {"StatefulSet": STATEFULSETS, "DaemonSet": DAEMONSETS}
# Kubelets of static pods, and Jobs, are not simulated.
_UNCONTROLLED: Final = frozenset({"Node", "Job"})


def fill_controllers(
    store: ObjectStore, copy: ClusterCopy, pods: Sequence[Json]
) -> dict[str, Json]:
    daemon_sets = {uid(daemon_set): daemon_set for daemon_set in copy.daemon_sets}
    deployments = {key(deployment): deployment for deployment in copy.deployments}
    pods_by_deployment, pods_by_owner = _group_pods(pods, deployments, daemon_sets)
    references = {
        owner_uid: _fill_controller(store, own_pods, daemon_sets.get(owner_uid), copy)
        for owner_uid, own_pods in pods_by_owner.items()
    }
    for deployment_key, own_pods in pods_by_deployment.items():
        reference = _fill_deployment(store, own_pods, deployments[deployment_key], copy.pace)
        # All ReplicaSets of a Deployment become one.
        for owner in filter(None, map(controller_of, own_pods)):
            references[owner["uid"]] = reference
    return references


def _group_pods(
    pods: Sequence[Json], deployments: Container[Key], daemon_sets: Collection[str]
) -> tuple[Mapping[Key, list[Json]], Mapping[str, list[Json]]]:
    """Return the pods by Deployment, and other pods by their owner's UID."""
    pods_by_deployment = defaultdict[Key, list[Json]](list)
    # DaemonSets without pods are stored, too.
    pods_by_owner: dict[str, list[Json]] = {owner_uid: [] for owner_uid in daemon_sets}
    for pod in pods:
        owner = controller_of(pod)
        if owner is None or owner["kind"] in _UNCONTROLLED:
            continue
        deployment_key = namespace_of(pod), _deployment_name(pod, owner)
        if deployment_key in deployments:
            pods_by_deployment[deployment_key].append(pod)
        # A DaemonSet whose spec is unknown cannot be simulated.
        elif owner["kind"] != "DaemonSet" or owner["uid"] in daemon_sets:
            pods_by_owner.setdefault(owner["uid"], []).append(pod)
    return pods_by_deployment, pods_by_owner


def create_copy(
    store: ObjectStore, resource: Resource, obj: Json, spec: Json, **metadata: Any
) -> Json:
    for name in ("name", "namespace", "labels"):
        if name in obj["metadata"]:
            metadata[name] = obj["metadata"][name]
    return store.create(resource, with_defaults(resource, {"metadata": metadata, "spec": spec}))


def _fill_controller(
    store: ObjectStore, pods: Sequence[Json], daemon_set: Json | None, copy: ClusterCopy
) -> Json:
    """A custom owner becomes a database, any other unknown one a ReplicaSet."""
    owner = controller_of(pods[0]) if pods else None
    if owner is None:
        owner = {"kind": "DaemonSet", **(daemon_set or {})["metadata"]}
    resource = _resource_of(owner)
    labels = _common_labels(pods) or {"app": owner["name"]}
    template = {
        "metadata": {"labels": labels, "annotations": timings_of(owner["uid"], copy.pace)},
        "spec": _template_spec(resource, pods, daemon_set or {}),
    }
    spec: Json = {"selector": {"matchLabels": labels}, "template": template}
    names = [name_of(pod) for pod in pods if not is_finished(pod)]
    if resource is STATEFULSETS:
        spec["replicas"] = 1 + max((int(name.rpartition("-")[2]) for name in names), default=-1)
    elif resource is REPLICASETS:
        spec["replicas"] = len(names)
    elif resource is CLUSTERS:
        template["metadata"]["annotations"][SWITCHOVER] = str(HANDOVER_SECONDS)
        spec |= {"instanceNames": names, "role": _role_of(pods, copy.budgets)}
    namespace = namespace_of(pods[0] if pods else daemon_set or {})
    obj = {"metadata": {"name": owner["name"], "namespace": namespace, "labels": labels}}
    return owner_reference(create_copy(store, resource, obj, spec), resource)


def _fill_deployment(
    store: ObjectStore, pods: Sequence[Json], deployment: Json, pace: CopiedPace
) -> Json:
    labels = _common_labels(pods)
    template_hash = labels.pop(TEMPLATE_HASH, labels_of(pods[0])[TEMPLATE_HASH])
    owner_uid = (controller_of(pods[0]) or {})["uid"]
    template = {
        "metadata": {"labels": labels, "annotations": timings_of(owner_uid, pace)},
        "spec": _template_spec(REPLICASETS, pods, {}),
    }
    spec = {**spec_of(deployment), "selector": {"matchLabels": labels}, "template": template}
    annotations = {COPIED_HASH: template_hash}
    stored = create_copy(store, DEPLOYMENTS, deployment, spec, annotations=annotations)
    replica_set = store.create(REPLICASETS, replica_set_of(stored, replicas_of(stored)))
    return owner_reference(replica_set, REPLICASETS)


def _deployment_name(pod: Json, owner: Json) -> str:
    name: str = owner["name"]
    suffix = f"-{labels_of(pod).get(TEMPLATE_HASH, '')}"
    is_rolled = owner["kind"] == "ReplicaSet" and name.endswith(suffix)
    return name.removesuffix(suffix) if is_rolled else ""


def fill_operators(store: ObjectStore, copy: ClusterCopy, pods: Sequence[Json]) -> None:
    pods_by_namespace = grouped((namespace_of(pod), pod) for pod in pods)
    for budget in copy.budgets:
        if not status_of(budget).get("disruptionsAllowed"):
            neighbors = pods_by_namespace.get(namespace_of(budget), ())
            _fill_operator(store, budget, neighbors)


def _fill_operator(store: ObjectStore, budget: Json, neighbors: Sequence[Json]) -> None:
    selector = spec_of(budget).get("selector")
    covered = [pod for pod in neighbors if matches(selector, labels_of(pod))]
    owners = {owner["uid"]: owner for owner in map(controller_of, covered) if owner}
    move_themselves = any(_resource_of(owner) is CLUSTERS for owner in owners.values())
    if selector is None or move_themselves or not _is_managed(budget, covered):
        return
    siblings = [pod for pod in neighbors if (controller_of(pod) or {}).get("uid") in owners]
    role = _role_of(siblings, (budget,))
    shared = {
        label: value
        for label, value in (selector.get("matchLabels") or {}).items()
        if label != role.get("label")
    }
    spec = {
        "instanceNames": [],
        "podSelector": {**selector, "matchLabels": shared},
        "role": role,
        "template": {"metadata": {"annotations": {SWITCHOVER: str(HANDOVER_SECONDS)}}},
    }
    create_copy(store, CLUSTERS, budget, spec)


def _is_managed(budget: Json, pods: Sequence[Json]) -> bool:
    """Whether planning expects a custom controller to open the budget."""
    owner = controller_of(budget)
    if owner is not None and _is_custom(owner):
        return True
    return bool(pods) and all(map(_has_custom_controller, pods))


def _has_custom_controller(pod: Json) -> bool:
    owner = controller_of(pod)
    return owner is not None and (_is_custom(owner) or SPILO in labels_of(pod).items())


def _is_custom(owner: Json) -> bool:
    reference = OwnerRef(owner.get("apiVersion", ""), owner["kind"], owner["name"], "")
    return not reference.is_of_kubernetes


def _resource_of(owner: Json) -> Resource:
    return _CONTROLLED.get(owner["kind"], CLUSTERS if _is_custom(owner) else REPLICASETS)


def _role_of(pods: Sequence[Json], budgets: Sequence[Json]) -> Json:
    """Return the label, with both values, by which a closed budget selects some pods."""
    for budget in budgets:
        if status_of(budget).get("disruptionsAllowed"):
            continue
        selected = (spec_of(budget).get("selector") or {}).get("matchLabels") or {}
        for label, value in selected.items():
            values = {labels_of(pod)[label] for pod in pods if label in labels_of(pod)}
            others = values - {value}
            if value in values and others:
                return {"label": label, "primary": value, "replica": min(others)}
    return {}


def _template_spec(resource: Resource, pods: Sequence[Json], daemon_set: Json) -> Json:
    """A DaemonSet's own spec says which nodes it runs on."""
    spec = dict(spec_of(pods[0])) if pods else {"containers": [{"name": "main"}]}
    spec.pop("nodeName", None)
    if resource is DAEMONSETS:
        own_spec = spec_of(spec_of(daemon_set).get("template") or {})
        for name in ("nodeSelector", "affinity", "tolerations"):
            spec.pop(name, None)
            if name in own_spec:
                spec[name] = own_spec[name]
    elif resource in (STATEFULSETS, CLUSTERS):
        spec["volumes"] = [_volume_by_ordinal(volume) for volume in spec.get("volumes") or ()]
    return spec


def _volume_by_ordinal(volume: Json) -> Json:
    claim = volume.get("persistentVolumeClaim")
    match = _ORDINAL.fullmatch(claim["claimName"]) if claim else None
    if match is None:
        return volume
    return {**volume, "persistentVolumeClaim": {"claimName": match[1] + ORDINAL}}


def _common_labels(pods: Sequence[Json]) -> dict[str, str]:
    if not pods:
        return {}
    labels = [set(labels_of(pod).items()) for pod in pods]
    return dict(sorted(set.intersection(*labels)))


def timings_of(owner_uid: str, pace: CopiedPace) -> dict[str, str]:
    if owner_uid not in pace.owners:
        return {}
    termination, startup = pace.owners[owner_uid]
    timings = {
        f"{LAB_PREFIX}termination-seconds": str(termination),
        f"{LAB_PREFIX}startup-seconds": str(startup),
    }
    if owner_uid in pace.completions:
        timings[f"{LAB_PREFIX}run-seconds"] = str(pace.completions[owner_uid])
    return timings
