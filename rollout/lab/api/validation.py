"""What a server refuses to store: the rules that a rollout, or kubectl on a lab, can break. Pure.

Each rule yields causes; all of them are collected into one 422. What cannot even be decoded is a 400.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypedDict

import msgspec

from rollout.lab.api.resources import CONFIGMAPS, EVENTS, LEASES, NODES, PODS, Resource
from rollout.lab.api.statuses import Cause, StatusError, bad_request, invalid, invalid_patch
from rollout.lab.api.store import Json

_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_WORD: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LONGEST_NAME, _LONGEST_WORD = 253, 63
_MOST_ANNOTATIONS: Final = 256 * 1024
_MOST_CONFIG: Final = 1024 * 1024
_EFFECTS: Final = ("NoExecute", "NoSchedule", "PreferNoSchedule")
_BAD_NAME: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    f"'{_SUBDOMAIN}')"
)
_BAD_KEY: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_WORD}')"
)
_BAD_LABEL: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
    f"validation is '({_WORD})?')"
)
_FROZEN: Final = "Forbidden: field is immutable when `immutable` is set"

_Texts = dict[str, str | None] | None


class _Metadata(TypedDict, total=False):
    name: str | None
    generateName: str | None
    namespace: str | None
    uid: str | None
    resourceVersion: str | None
    labels: _Texts
    annotations: _Texts
    finalizers: list[Any] | None
    ownerReferences: list[Any] | None


class _Spec(TypedDict, total=False):
    unschedulable: bool | None
    taints: list[dict[str, Any]] | None
    containers: list[Any] | None
    holderIdentity: str | None
    leaseDurationSeconds: int | None


class _Object(TypedDict, total=False):
    metadata: _Metadata | None
    spec: _Spec | None
    status: dict[str, Any] | None
    data: _Texts


def check_shape(resource: Resource, obj: Json, refuse: Any = bad_request) -> None:
    """Raise a 400 where a part of the body is of another JSON type than it has to be."""
    try:
        # the data of a Secret, and the messages of Events, are texts as well
        msgspec.convert(obj, _Object)
    except msgspec.ValidationError as error:
        path = re.sub(r".*`\$\.?([\w.]*).*", r"\1", str(error))
        kind, go = resource.kind, "json: cannot unmarshal into Go struct field"
        refusal: StatusError = refuse(f'{kind} in version "v1" cannot be handled as a {kind}: {go} {kind}.{path}')
        raise refusal from error


def check_patched_shape(resource: Resource, obj: Json) -> None:
    """Raise a 422 where a patch has made such a thing of the object."""
    check_shape(resource, obj, invalid_patch)


def check_kind(resource: Resource, obj: Json) -> None:
    """Raise a 400 where the body is of another kind than its address."""
    version, kind = obj.get("apiVersion"), obj.get("kind")
    if version not in {None, "", resource.api_version} or kind not in {None, "", resource.kind}:
        given, expected = f"{version}, Kind={kind}", f"{resource.api_version}, Kind={resource.kind}"
        raise bad_request(f"the API version in the data ({given}) does not match the expected API version ({expected})")


def check_new(resource: Resource, obj: Json) -> None:
    """Raise a 422 unless the object may be created."""
    metadata = obj["metadata"]
    _refuse(resource, metadata.get("name", ""), [*_name_causes(metadata), *_causes(resource, obj)])


def check_update(resource: Resource, obj: Json, current: Json) -> None:
    """Raise a 422 unless the object may become this."""
    causes = [*_causes(resource, obj)]
    if resource is NODES:
        # A real server validates a changed node's taints twice, and says so twice.
        causes += _taint_causes(obj)
    if resource is CONFIGMAPS and current.get("immutable"):
        changed = (field for field in ("immutable", "data", "binaryData") if obj.get(field) != current.get(field))
        causes += [Cause("FieldValueForbidden", _FROZEN, field=field) for field in changed]
    _refuse(resource, obj["metadata"]["name"], causes)


def _refuse(resource: Resource, name: str, causes: list[Cause]) -> None:
    if causes:
        raise invalid(resource, name, causes)


def key_problem(key: str) -> str:
    """Why a text is no key of a label or an annotation; empty where it is one."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > _LONGEST_NAME or not re.fullmatch(_SUBDOMAIN, prefix)):
        return f"prefix part {_BAD_NAME}"
    if len(name) > _LONGEST_WORD:
        return f"name part must be no more than {_LONGEST_WORD} bytes"
    return "" if re.fullmatch(_WORD, name) else _BAD_KEY


def value_problem(value: str) -> str:
    """Why a text is no value of a label; empty where it is one."""
    if len(value) > _LONGEST_WORD:
        return f"must be no more than {_LONGEST_WORD} bytes"
    return "" if not value or re.fullmatch(_WORD, value) else _BAD_LABEL


def _name_causes(metadata: Json) -> Iterator[Cause]:
    name = metadata.get("name")
    if not name and not metadata.get("generateName"):
        message = "Required value: name or generateName is required"
        yield Cause("FieldValueRequired", message, field="metadata.name")
    elif name and (len(name) > _LONGEST_NAME or not re.fullmatch(_SUBDOMAIN, name)):
        yield _invalid("metadata.name", name, _BAD_NAME)


def _causes(resource: Resource, obj: Json) -> Iterator[Cause]:
    metadata = obj["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    for value in labels.values():
        yield from _if(value_problem(value), "metadata.labels", value)
    yield from _key_causes("metadata.labels", labels)
    # Annotations are looked at in lower case.
    yield from _key_causes("metadata.annotations", {key.lower(): value for key, value in annotations.items()})
    if _size(annotations) > _MOST_ANNOTATIONS:
        yield _too_long("metadata.annotations", _MOST_ANNOTATIONS)
    if resource is NODES:
        yield from _taint_causes(obj)
    elif resource is PODS and not (obj.get("spec") or {}).get("containers"):
        yield Cause("FieldValueRequired", "Required value", field="spec.containers")
    elif resource is CONFIGMAPS and _size({"": "".join(map(str, (obj.get("data") or {}).values()))}) > _MOST_CONFIG:
        yield _too_long("[]", _MOST_CONFIG)
    elif resource is LEASES and (obj.get("spec") or {}).get("leaseDurationSeconds", 1) == 0:
        yield _invalid("spec.leaseDurationSeconds", "0", "must be greater than 0")
    elif resource is EVENTS and not _lies_beside_its_object(obj):
        yield _invalid("involvedObject.namespace", "", "does not match event.namespace")


def _lies_beside_its_object(event: Json) -> bool:
    """Tell whether an Event lies beside its object; one about an object without a namespace lies in `default`."""
    involved = (event.get("involvedObject") or {}).get("namespace") or "default"
    return bool(event["metadata"].get("namespace", "") == involved)


def _taint_causes(node: Json) -> Iterator[Cause]:
    seen = set[tuple[str, str]]()
    for index, taint in enumerate((node.get("spec") or {}).get("taints") or ()):
        field, key, effect = f"metadata.taints[{index}]", taint.get("key") or "", taint.get("effect") or ""
        if (key, effect) in seen:
            message = f"Duplicate value: {taint}: taints must be unique by key and effect pair"
            yield Cause("FieldValueDuplicate", message, field=field)
        seen.add((key, effect))
        yield from _if(key_problem(key), f"{field}.key", key)
        yield from _if(value_problem(taint.get("value") or ""), f"{field}.value", taint.get("value") or "")
        if not effect:
            yield Cause("FieldValueRequired", "Required value", field=f"{field}.effect")
        elif effect not in _EFFECTS:
            supported = ", ".join(f'"{word}"' for word in _EFFECTS)
            message = f'Unsupported value: "{effect}": supported values: {supported}'
            yield Cause("FieldValueNotSupported", message, field=f"{field}.effect")


def _key_causes(field: str, pairs: Mapping[str, object]) -> Iterator[Cause]:
    for key in pairs:
        yield from _if(key_problem(key), field, key)


def _if(problem: str, field: str, value: str) -> Iterator[Cause]:
    if problem:
        yield _invalid(field, value, problem)


def _invalid(field: str, value: str, why: str) -> Cause:
    return Cause("FieldValueInvalid", f'Invalid value: "{value}": {why}', field=field)


def _too_long(field: str, most: int) -> Cause:
    return Cause("FieldValueTooLong", f"Too long: may not be more than {most} bytes", field=field)


def _size(texts: Mapping[str, str | None]) -> int:
    return sum(len(key.encode()) + len((value or "").encode()) for key, value in texts.items())
