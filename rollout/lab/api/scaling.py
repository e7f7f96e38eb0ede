from typing import Any

from msgspec.structs import replace

from rollout.lab.api.requests import Call
from rollout.lab.api.statuses import bad_request, cause, invalid
from rollout.lab.api.store import Json
from rollout.lab.api.writing import Writer, apply_patch
from rollout.lab.objects import spec_of, status_of, with_metadata

_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(workload: Json) -> Json:
    spec = spec_of(workload)
    metadata = workload["metadata"]
    labels = (spec.get("selector") or {}).get("matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: metadata[field] for field in _METADATA if field in metadata},
        "spec": {"replicas": spec.get("replicas", 1)},
        "status": {
            "replicas": status_of(workload).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in labels.items()),
        },
    }


def patch_scale(writer: Writer, call: Call, patch: Any) -> Json:
    workload = writer.current(call.target.resource, call.target.name, call.target.namespace)
    return update_scale(writer, call, apply_patch(call.content_type, scale_of(workload), patch))


def update_scale(writer: Writer, call: Call, scale: Json) -> Json:
    target = call.target
    workload = writer.current(target.resource, target.name, target.namespace)
    metadata = scale.get("metadata") or {}
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if metadata.get("name", target.name) != target.name:
        raise bad_request("the name of the object does not match the name on the URL")
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request(
            'Scale in version "v1" cannot be handled as a Scale: spec.replicas is no number'
        )
    if replicas < 0:
        message = f"Invalid value: {replicas}: must be greater than or equal to 0"
        negative = cause("FieldValueInvalid", message, "spec.replicas")
        raise invalid(target.resource, target.name, [negative])
    version = metadata.get("resourceVersion") or workload["metadata"]["resourceVersion"]
    scaled = with_metadata(workload, resourceVersion=version)
    scaled["spec"] = {**workload["spec"], "replicas": replicas}
    call = replace(call, target=replace(target, subresource=""))
    return scale_of(writer.replace(call, workload, scaled))
