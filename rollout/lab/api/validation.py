"""What a server refuses to store: the rules that clients of this cluster can break.

Each rule yields causes; all of them are collected into one 422.
"""

import re
from collections.abc import Iterator

from rollout.lab.api.content import (
    content_causes,
    deletion_causes,
    frozen_causes,
    invalid_value,
    label_value_problems,
    qualified_name_problems,
    settled_causes,
)
from rollout.lab.api.resources import CONFIGMAPS, NODES, PODS, Resource
from rollout.lab.api.statuses import Cause, bad_request, invalid
from rollout.lab.api.store import Json

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_LENGTH = 253
_BAD_NAME = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_IMMUTABLE_POD = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_MUTABLE_POD_FIELDS = frozenset({"activeDeadlineSeconds", "tolerations", "schedulingGates"})


def check_new(resource: Resource, obj: Json) -> None:
    """Raise a 422 unless the object may be created."""
    metadata = obj["metadata"]
    _refuse(resource, metadata.get("name", ""), [*_name_causes(metadata), *_causes(resource, obj)])


def check_update(resource: Resource, obj: Json, current: Json) -> None:
    """Raise a 422 unless the object may become this."""
    causes = [*_causes(resource, obj), *deletion_causes(obj, current)]
    if resource is NODES:
        # A real server validates a changed node's taints twice, and says so twice.
        causes += [*_taint_causes(obj), *settled_causes(obj, current)]
    if resource is PODS and _frozen(obj) != _frozen(current):
        causes.append(Cause("FieldValueForbidden", f"Forbidden: {_IMMUTABLE_POD}", field="spec"))
    if resource is CONFIGMAPS:
        causes += frozen_causes(obj, current)
    _refuse(resource, obj["metadata"]["name"], causes)


def check_kind(resource: Resource, obj: Json) -> None:
    """Raise a 400 where the body is of another kind than its address."""
    version, kind = obj.get("apiVersion"), obj.get("kind")
    if version not in {None, "", resource.api_version} or kind not in {None, "", resource.kind}:
        given, expected = f"{version}, Kind={kind}", f"{resource.api_version}, Kind={resource.kind}"
        raise bad_request(f"the API version in the data ({given}) does not match the expected API version ({expected})")


def _refuse(resource: Resource, name: str, causes: list[Cause]) -> None:
    if causes:
        raise invalid(resource, name, causes)


def _causes(resource: Resource, obj: Json) -> Iterator[Cause]:
    yield from _label_causes(obj)
    yield from content_causes(resource, obj)
    if resource is NODES:
        yield from _taint_causes(obj)
    if resource is PODS and not (obj.get("spec") or {}).get("containers"):
        yield Cause("FieldValueRequired", "Required value", field="spec.containers")


def _name_causes(metadata: Json) -> Iterator[Cause]:
    name = metadata.get("name")
    if not name and not metadata.get("generateName"):
        message = "Required value: name or generateName is required"
        yield Cause("FieldValueRequired", message, field="metadata.name")
    elif name and (len(name) > _NAME_LENGTH or not _NAME.fullmatch(name)):
        yield Cause("FieldValueInvalid", f'Invalid value: "{name}": {_BAD_NAME}', field="metadata.name")


def _label_causes(obj: Json) -> Iterator[Cause]:
    for value in (obj["metadata"].get("labels") or {}).values():
        for problem in label_value_problems(value):
            yield Cause("FieldValueInvalid", f'Invalid value: "{value}": {problem}', field="metadata.labels")


def _taint_causes(node: Json) -> Iterator[Cause]:
    seen = set[tuple[str | None, str | None]]()
    for index, taint in enumerate((node.get("spec") or {}).get("taints") or ()):
        field = f"metadata.taints[{index}]"
        identity = (taint.get("key"), taint.get("effect"))
        if identity in seen:
            message = f"Duplicate value: {taint}: taints must be unique by key and effect pair"
            yield Cause("FieldValueDuplicate", message, field=field)
        seen.add(identity)
        yield from _taint_text_causes(field, taint.get("key") or "", taint.get("value") or "")
        effect = taint.get("effect")
        if not effect:
            yield Cause("FieldValueRequired", "Required value", field=f"{field}.effect")
        elif effect not in _EFFECTS:
            supported = ", ".join(f'"{effect}"' for effect in sorted(_EFFECTS))
            message = f'Unsupported value: "{effect}": supported values: {supported}'
            yield Cause("FieldValueNotSupported", message, field=f"{field}.effect")


def _taint_text_causes(field: str, key: str, value: str) -> Iterator[Cause]:
    """Keys and values of taints are of the same form as those of labels."""
    if not key:
        yield Cause("FieldValueRequired", "Required value", field=f"{field}.key")
        return
    for problem in qualified_name_problems(key):
        yield invalid_value(f"{field}.key", f'"{key}"', problem)
    for problem in label_value_problems(value):
        yield invalid_value(f"{field}.value", f'"{value}"', problem)


def _frozen(pod: Json) -> Json:
    """The part of a pod's spec that no update may change."""
    spec = {key: value for key, value in pod["spec"].items() if key not in _MUTABLE_POD_FIELDS}
    for containers in ("containers", "initContainers"):
        spec[containers] = [{**container, "image": ""} for container in spec.get(containers) or ()]
    return spec
