"""What rollout or kubectl could store that a server refuses. Pure."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from rollout.errors import UsageError
from rollout.lab.api.resources import CONFIGMAPS, EVENTS, Resource
from rollout.lab.api.statuses import cause, invalid
from rollout.lab.api.store import Json
from rollout.lab.objects import annotations_of, field_of, labels_of
from rollout.model.selectors import check_label_name, is_label_value

_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_MAX_NAME: Final = 253
_MAX_ANNOTATIONS_BYTES: Final = 256 * 1024
_MAX_CONFIG_BYTES: Final = 1024 * 1024
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
_IMMUTABLE: Final = "Forbidden: field is immutable when `immutable` is set"


def check(resource: Resource, obj: Json, current: Json | None = None) -> None:
    metadata = obj["metadata"]
    causes: list[Json] = []
    if current is None:
        causes += _check_name(metadata)
    causes += _check_content(resource, obj)
    if resource is CONFIGMAPS and current and current.get("immutable"):
        for field in ("immutable", "data", "binaryData"):
            if obj.get(field) != current.get(field):
                causes.append(cause("FieldValueForbidden", _IMMUTABLE, field))
    causes += _check_claims(obj)
    if causes:
        raise invalid(resource, metadata.get("name", ""), causes)


def _check_claims(obj: Json) -> Iterator[Json]:
    """Nothing would allocate ResourceClaims."""
    for path in ("spec.resourceClaims", "spec.template.spec.resourceClaims"):
        if field_of(obj, path):
            yield cause("FieldValueForbidden", "Forbidden: the lab has no ResourceClaims", path)


def _check_name(metadata: Json) -> Iterator[Json]:
    name = metadata.get("name")
    if not name and not metadata.get("generateName"):
        message = "Required value: name or generateName is required"
        yield cause("FieldValueRequired", message, "metadata.name")
    elif name and (len(name) > _MAX_NAME or not re.fullmatch(_SUBDOMAIN, name)):
        yield _invalid("metadata.name", name, _BAD_NAME)


def _check_content(resource: Resource, obj: Json) -> Iterator[Json]:
    labels = labels_of(obj)
    for value in labels.values():
        if not is_label_value(value):
            yield _invalid("metadata.labels", value, _BAD_LABEL)
    yield from _check_keys("metadata.labels", labels)
    annotations = annotations_of(obj)
    # A server checks these keys in lower case.
    yield from _check_keys("metadata.annotations", [key.lower() for key in annotations])
    texts = (*annotations, *annotations.values())
    yield from _check_length("metadata.annotations", texts, _MAX_ANNOTATIONS_BYTES)
    if resource is CONFIGMAPS:
        yield from _check_length("[]", (obj.get("data") or {}).values(), _MAX_CONFIG_BYTES)
    if resource is EVENTS:
        # An Event about a cluster-scoped object belongs to `default`.
        namespace = (obj.get("involvedObject") or {}).get("namespace") or "default"
        if obj["metadata"].get("namespace") != namespace:
            yield _invalid("involvedObject.namespace", "", "does not match event.namespace")


def _check_keys(field: str, keys: Iterable[str]) -> Iterator[Json]:
    for key in keys:
        try:
            check_label_name(key)
        except UsageError as error:
            yield _invalid(field, key, str(error))


def _invalid(field: str, value: str, why: str) -> Json:
    return cause("FieldValueInvalid", f'Invalid value: "{value}": {why}', field)


def _check_length(field: str, texts: Iterable[str], limit: int) -> Iterator[Json]:
    if sum(len(text.encode()) for text in texts) > limit:
        yield cause("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", field)
