"""The rules of those kinds that a rollout writes: metadata, ConfigMaps, Leases, Events and budgets. Pure."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from rollout.lab.api.resources import BUDGETS, CONFIGMAPS, EVENTS, LEASES, Resource
from rollout.lab.api.statuses import Cause
from rollout.lab.api.store import Json

_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_PREFIX_PART = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,63}")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_PERCENTAGE = re.compile(r"[0-9]+%")
_NAME_PART_LENGTH, _PREFIX_LENGTH = 63, 253
_CONFIG_KEY_LENGTH = 253
_MOST_ANNOTATIONS = 256 * 1024
_MOST_CONFIG = 1024 * 1024
_WHOLE = 100

_BAD_NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_BAD_PREFIX = (
    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
    "must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_BAD_LABEL = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
    "validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_BAD_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_LONG_KEY = f"must be no more than {_CONFIG_KEY_LENGTH} characters"
_BAD_PERCENTAGE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)


def content_causes(resource: Resource, obj: Json) -> Iterator[Cause]:
    """What is wrong with the object, beyond its name, labels' values and types."""
    metadata = obj["metadata"]
    yield from _key_causes("metadata.labels", metadata.get("labels") or {})
    # Annotations are looked at in lower case.
    annotations = metadata.get("annotations") or {}
    yield from _key_causes("metadata.annotations", {key.lower(): value for key, value in annotations.items()})
    if sum(len(key.encode()) + len((value or "").encode()) for key, value in annotations.items()) > _MOST_ANNOTATIONS:
        yield _too_long("metadata.annotations", _MOST_ANNOTATIONS)
    rules = _RULES.get(resource)
    if rules is not None:
        yield from rules(obj)


def qualified_name_problems(key: str) -> Iterator[str]:
    """Why a text is no key of a label or an annotation."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > _PREFIX_LENGTH or not _PREFIX_PART.fullmatch(prefix)):
        yield _BAD_PREFIX if prefix else "prefix part must be non-empty"
    if not name:
        yield "name part must be non-empty"
    elif len(name) > _NAME_PART_LENGTH:
        yield f"name part must be no more than {_NAME_PART_LENGTH} bytes"
    if not _NAME_PART.fullmatch(name):
        yield _BAD_NAME_PART


def label_value_problems(value: str) -> Iterator[str]:
    """Why a text is no value of a label."""
    if len(value) > _NAME_PART_LENGTH:
        yield f"must be no more than {_NAME_PART_LENGTH} bytes"
    elif not _LABEL_VALUE.fullmatch(value):
        yield _BAD_LABEL


def label_number(text: str | None) -> int | None:
    """The 64-bit number that a server reads in a label's value to compare it; None where it reads none."""
    number = int(text) if text and _INTEGER.fullmatch(text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def _key_causes(field: str, pairs: Mapping[str, object]) -> Iterator[Cause]:
    for key in pairs:
        for problem in qualified_name_problems(key):
            yield invalid_value(field, f'"{key}"', problem)


def _lease_causes(lease: Json) -> Iterator[Cause]:
    spec = lease.get("spec") or {}
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        yield invalid_value("spec.leaseDurationSeconds", str(duration), "must be greater than 0")
    if transitions is not None and transitions < 0:
        yield invalid_value("spec.leaseTransitions", str(transitions), "must be greater than or equal to 0")


def _config_causes(config: Json) -> Iterator[Cause]:
    texts, others = config.get("data") or {}, config.get("binaryData") or {}
    for field, keys in (("data", texts), ("binaryData", others)):
        for key in sorted(keys):
            for problem in _config_key_problems(key):
                yield invalid_value(f"{field}[{key}]", f'"{key}"', problem)
    for key in sorted(texts):
        if key in others:
            yield invalid_value(f"data[{key}]", f'"{key}"', "duplicate of key present in binaryData")
    size = sum(len((text or "").encode()) for text in texts.values())
    size += sum(len(other or "") * 3 // 4 for other in others.values())
    if size > _MOST_CONFIG:
        yield _too_long("[]", _MOST_CONFIG)


def _config_key_problems(key: str) -> Iterator[str]:
    """Keys become names of files."""
    if len(key) > _CONFIG_KEY_LENGTH:
        yield _LONG_KEY
    if not _CONFIG_KEY.fullmatch(key):
        yield _BAD_KEY
    if key in {".", ".."}:
        yield f"must not be '{key}'"
    elif key.startswith(".."):
        yield "must not start with '..'"


def frozen_causes(config: Json, current: Json) -> Iterator[Cause]:
    """What may not change of a ConfigMap that somebody has made immutable: what it holds, and that it is so."""
    if not current.get("immutable"):
        return
    message = "Forbidden: field is immutable when `immutable` is set"
    if not config.get("immutable"):
        yield Cause("FieldValueForbidden", message, field="immutable")
    for field in ("data", "binaryData"):
        if (config.get(field) or {}) != (current.get(field) or {}):
            yield Cause("FieldValueForbidden", message, field=field)


def deletion_causes(obj: Json, current: Json) -> Iterator[Cause]:
    """What may not change of an object that is being deleted: more that holds it."""
    metadata = current["metadata"]
    more = sorted(set(obj["metadata"].get("finalizers") or ()) - set(metadata.get("finalizers") or ()))
    if more and "deletionTimestamp" in metadata:
        message = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers"
        yield Cause("FieldValueForbidden", f"{message} {more}", field="metadata.finalizers")


def settled_causes(node: Json, current: Json) -> Iterator[Cause]:
    """What of a Node's spec stays as it was once it is there."""
    before, after = current.get("spec") or {}, node.get("spec") or {}
    for field in ("podCIDR", "providerID"):
        if before.get(field) and after.get(field) != before[field]:
            message = f'Forbidden: node updates may not change {field} except from "" to valid'
            yield Cause("FieldValueForbidden", message, field=f"spec.{field}")


def _event_causes(event: Json) -> Iterator[Cause]:
    """An Event lies beside its object; one about an object without a namespace lies in `default`."""
    involved = (event.get("involvedObject") or {}).get("namespace") or ""
    if event["metadata"].get("namespace", "") != (involved or "default"):
        yield invalid_value("involvedObject.namespace", f'"{involved}"', "does not match event.namespace")


def _budget_causes(budget: Json) -> Iterator[Cause]:
    spec = budget.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield invalid_value("spec", "{}", "minAvailable and maxUnavailable cannot be both set")
    for field in ("minAvailable", "maxUnavailable"):
        amount = spec.get(field)
        if isinstance(amount, str) and not _PERCENTAGE.fullmatch(amount):
            yield invalid_value(f"spec.{field}", f'"{amount}"', _BAD_PERCENTAGE)
        elif isinstance(amount, str) and int(amount[:-1]) > _WHOLE:
            yield invalid_value(f"spec.{field}", f'"{amount}"', "must not be greater than 100%")
        elif isinstance(amount, int) and amount < 0:
            yield invalid_value(f"spec.{field}", str(amount), "must be greater than or equal to 0")


_RULES: Final[Mapping[Resource, Callable[[Json], Iterator[Cause]]]] = {
    LEASES: _lease_causes,
    CONFIGMAPS: _config_causes,
    EVENTS: _event_causes,
    BUDGETS: _budget_causes,
}


def invalid_value(field: str, value: str, why: str) -> Cause:
    """The cause for a value that breaks a rule."""
    return Cause("FieldValueInvalid", f"Invalid value: {value}: {why}", field=field)


def _too_long(field: str, most: int) -> Cause:
    return Cause("FieldValueTooLong", f"Too long: may not be more than {most} bytes", field=field)
