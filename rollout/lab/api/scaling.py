"""The scale subresource: how many replicas a workload is to have, without the rest of it."""

from rollout.lab.api.requests import Target
from rollout.lab.api.resources import Resource
from rollout.lab.api.statuses import bad_request
from rollout.lab.api.store import Json


def scale_of(obj: Json) -> Json:
    """The workload's Scale."""
    metadata = {
        key: obj["metadata"][key]
        for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if key in obj["metadata"]
    }
    replicas = obj["spec"].get("replicas", 1)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": replicas} if replicas else {},
        "status": {
            "replicas": (obj.get("status") or {}).get("replicas", 0),
            "selector": _selector_text(obj["spec"].get("selector")),
        },
    }


def scaled(target: Target, resource: Resource, obj: Json, scale: Json) -> Json:
    """The workload with the replicas that a Scale wants."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        raise bad_request(f"{resource.plural} {target.name}: spec.replicas must be greater than or equal to 0")
    version = (scale.get("metadata") or {}).get("resourceVersion") or obj["metadata"]["resourceVersion"]
    metadata = {**obj["metadata"], "resourceVersion": version}
    return {**obj, "metadata": metadata, "spec": {**obj["spec"], "replicas": replicas}}


def _selector_text(selector: Json | None) -> str:
    chosen = selector or {}
    terms = [*(chosen.get("matchLabels") or {}).items()]
    terms += [
        (expression["key"], value)
        for expression in chosen.get("matchExpressions") or ()
        for value in expression.get("values") or ()
    ]
    return ",".join(f"{key}={value}" for key, value in terms)
