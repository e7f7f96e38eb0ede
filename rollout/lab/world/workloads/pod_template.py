"""Pods made from a controller's template, complete as an API server would have stored them."""

import hashlib
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from rollout.lab.api.resources import Resource
from rollout.lab.api.store import Json
from rollout.lab.world.objects import labels_of, spec_of
from rollout.lab.world.tolerations import NOT_READY, UNREACHABLE

_HASH_LENGTH = 10
# Digits and letters that cannot form words, as in the hashes of a real cluster.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"

_CONTAINER_DEFAULTS: Json = {
    "imagePullPolicy": "IfNotPresent",
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_SPEC_DEFAULTS: Json = {
    "dnsPolicy": "ClusterFirst",
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
    "priority": 0,
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "serviceAccountName": "default",
    "terminationGracePeriodSeconds": 30,
}


def owner_reference(owner: Json, resource: Resource) -> Json:
    """The reference that makes an object the managing owner of another."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def template_hash(template: Json) -> str:
    """Ten letters that change with the template."""
    digest = hashlib.sha256(msgspec.json.encode(template, order="sorted")).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:_HASH_LENGTH])


def pod_from(
    template: Json,
    owner: Json,
    resource: Resource,
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    generate_name: str = "",
) -> Json:
    """A new pod; its parts are shared with the template, so that many pods take little memory."""
    metadata: Json = {
        "name": name,
        "namespace": owner["metadata"].get("namespace", ""),
        "labels": {**labels_of({"metadata": template.get("metadata") or {}}), **(labels or {})},
        "ownerReferences": [owner_reference(owner, resource)],
        "generation": 1,
    }
    if generate_name:
        metadata["generateName"] = generate_name
    annotations = (template.get("metadata") or {}).get("annotations")
    if annotations:
        metadata["annotations"] = annotations
    spec = completed_spec(spec_of(template))
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending", "qosClass": quality(spec)}}


def completed_spec(spec: Json) -> Json:
    """A pod spec with the defaults and the tolerations that admission adds."""
    containers = [{**_CONTAINER_DEFAULTS, **container} for container in spec.get("containers") or ()]
    tolerations = list(spec.get("tolerations") or ())
    tolerations += [_default_toleration(key) for key in (NOT_READY, UNREACHABLE) if _lacks(tolerations, key)]
    return {**_SPEC_DEFAULTS, **spec, "containers": containers, "tolerations": tolerations}


def quality(spec: Json) -> str:
    """The pod's quality-of-service class."""
    resources = [container.get("resources") or {} for container in spec["containers"]]
    if not any(resource.get("requests") or resource.get("limits") for resource in resources):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= set(resource.get("limits") or ())
        and resource.get("requests") in (None, resource["limits"])
        for resource in resources
    )
    return "Guaranteed" if guaranteed else "Burstable"


@lru_cache
def _default_toleration(key: str) -> Json:
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}


def _lacks(tolerations: list[Json], key: str) -> bool:
    """Whether no toleration speaks of this NoExecute taint."""
    return not any(
        toleration.get("key") in (None, "", key) and toleration.get("effect") in (None, "", "NoExecute")
        for toleration in tolerations
    )
