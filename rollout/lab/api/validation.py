"""What a server refuses to store: the rules that a rollout, or kubectl on a lab, can break. Pure.

Each rule yields causes; all of them are collected into one 422. What cannot even be decoded is a
400.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from rollout.errors import UsageError
from rollout.lab.api.resources import CONFIGMAPS, EVENTS, Resource
from rollout.lab.api.statuses import cause, invalid
from rollout.lab.api.store import Json
from rollout.lab.objects import annotations_of, labels_of
from rollout.model.selectors import check_label_name, is_label_value

_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LONGEST_NAME: Final = 253
_MOST_ANNOTATIONS: Final = 256 * 1024
_MOST_CONFIG: Final = 1024 * 1024
_BAD_NAME: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or"
    " '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used"
    f" for validation is '{_SUBDOMAIN}')"
)
_BAD_LABEL: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or"
    " '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_FROZEN: Final = "Forbidden: field is immutable when `immutable` is set"


def check(resource: Resource, obj: Json, current: Json | None = None) -> None:
    """Raise a 422 unless the object may be created, or the current one may become this."""
    metadata = obj["metadata"]
    causes = [*(_name_causes(metadata) if current is None else ()), *_causes(resource, obj)]
    if resource is CONFIGMAPS and current and current.get("immutable"):
        changed = (
            field
            for field in ("immutable", "data", "binaryData")
            if obj.get(field) != current.get(field)
        )
        causes += [cause("FieldValueForbidden", _FROZEN, field) for field in changed]
    causes += _claim_causes(obj)
    if causes:
        raise invalid(resource, metadata.get("name", ""), causes)


def _claim_causes(obj: Json) -> Iterator[Json]:
    """Refuse pods that ask for devices: nothing here could allocate any, and they would wait for ever."""
    spec: Json = obj.get("spec") or {}
    template: Json = (spec.get("template") or {}).get("spec") or {}
    for field, of_pod in (("spec", spec), ("spec.template.spec", template)):
        if of_pod.get("resourceClaims"):
            message = "Forbidden: the lab has no ResourceClaims"
            yield cause("FieldValueForbidden", message, f"{field}.resourceClaims")


def _name_causes(metadata: Json) -> Iterator[Json]:
    name = metadata.get("name")
    if not name and not metadata.get("generateName"):
        yield cause(
            "FieldValueRequired",
            "Required value: name or generateName is required",
            "metadata.name",
        )
    elif name and (len(name) > _LONGEST_NAME or not re.fullmatch(_SUBDOMAIN, name)):
        yield _invalid("metadata.name", name, _BAD_NAME)


def _causes(resource: Resource, obj: Json) -> Iterator[Json]:
    metadata = obj["metadata"]
    labels = labels_of(obj)
    annotations = annotations_of(obj)
    for value in labels.values():
        if not is_label_value(value):
            yield _invalid("metadata.labels", value, _BAD_LABEL)
    yield from _key_causes("metadata.labels", labels)
    # Annotations are looked at in lower case.
    yield from _key_causes("metadata.annotations", [key.lower() for key in annotations])
    yield from _too_long(
        "metadata.annotations", (*annotations, *annotations.values()), _MOST_ANNOTATIONS
    )
    if resource is CONFIGMAPS:
        yield from _too_long("[]", (obj.get("data") or {}).values(), _MOST_CONFIG)
    # An Event lies beside its object; one about an object without a namespace lies in `default`.
    beside = (obj.get("involvedObject") or {}).get("namespace") or "default"
    if resource is EVENTS and metadata.get("namespace") != beside:
        yield _invalid("involvedObject.namespace", "", "does not match event.namespace")


def _key_causes(field: str, keys: Iterable[str]) -> Iterator[Json]:
    for key in keys:
        try:
            check_label_name(key)
        except UsageError as error:
            yield _invalid(field, key, str(error))


def _invalid(field: str, value: str, why: str) -> Json:
    return cause("FieldValueInvalid", f'Invalid value: "{value}": {why}', field)


def _too_long(field: str, texts: Iterable[str], most: int) -> Iterator[Json]:
    if sum(len(text.encode()) for text in texts) > most:
        yield cause("FieldValueTooLong", f"Too long: may not be more than {most} bytes", field)
