"""Bodies in Kubernetes' binary form, for the few kinds that clients send in no other.

Clients built on typed libraries (kubectl's `auth can-i`, `drain`, `delete`) encode what they create as
protobuf. Answers are always JSON, which all of them accept. Only the fields that this server looks at are in
the tables; field numbers are those of the published Kubernetes API definitions.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rollout.lab.api.statuses import unsupported_media_type
from rollout.lab.api.store import Json

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\0"
_VARINT, _LENGTH = 0, 2
_FIXED = {1: 8, 5: 4}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message: its JSON name, how its bytes read, and whether it repeats."""

    name: str
    read: Callable[[Any], Any]
    repeated: bool = False
    mapped: bool = False


Message = Mapping[int, Field]


def _text(raw: bytes) -> str:
    return bytes(raw).decode(errors="replace")


def _nested(message: Message) -> Callable[[bytes], Json]:
    def read(raw: bytes) -> Json:
        return decode_message(bytes(raw), message)

    return read


def _base64(raw: bytes) -> str:
    """As JSON has bytes."""
    return b64encode(bytes(raw)).decode()


_PAIR: Message = {1: Field("key", _text), 2: Field("value", _text)}
_SECRET_PAIR: Message = {1: Field("key", _text), 2: Field("value", _base64)}
_META: Message = {
    1: Field("name", _text),
    2: Field("generateName", _text),
    3: Field("namespace", _text),
    5: Field("uid", _text),
    6: Field("resourceVersion", _text),
    11: Field("labels", _nested(_PAIR), mapped=True),
    12: Field("annotations", _nested(_PAIR), mapped=True),
}
_METADATA = Field("metadata", _nested(_META))
_DELETE_OPTIONS: Message = {
    1: Field("gracePeriodSeconds", int),
    2: Field("preconditions", _nested({1: Field("uid", _text), 2: Field("resourceVersion", _text)})),
    3: Field("orphanDependents", bool),
    4: Field("propagationPolicy", _text),
    5: Field("dryRun", _text, repeated=True),
}
_RESOURCE_ATTRIBUTES: Message = {
    1: Field("namespace", _text),
    2: Field("verb", _text),
    3: Field("group", _text),
    4: Field("version", _text),
    5: Field("resource", _text),
    6: Field("subresource", _text),
    7: Field("name", _text),
}
_ACCESS_SPEC: Message = {
    1: Field("resourceAttributes", _nested(_RESOURCE_ATTRIBUTES)),
    2: Field("nonResourceAttributes", _nested({1: Field("path", _text), 2: Field("verb", _text)})),
}
_SUBJECT: Message = {
    1: Field("kind", _text),
    2: Field("apiGroup", _text),
    3: Field("name", _text),
    4: Field("namespace", _text),
}
_ROLE_REF: Message = {1: Field("apiGroup", _text), 2: Field("kind", _text), 3: Field("name", _text)}
_ROLE_BINDING: Message = {
    1: _METADATA,
    2: Field("subjects", _nested(_SUBJECT), repeated=True),
    3: Field("roleRef", _nested(_ROLE_REF)),
}
_KINDS: dict[str, Message] = {
    "Eviction": {1: _METADATA, 2: Field("deleteOptions", _nested(_DELETE_OPTIONS))},
    "DeleteOptions": _DELETE_OPTIONS,
    "SelfSubjectAccessReview": {1: _METADATA, 2: Field("spec", _nested(_ACCESS_SPEC))},
    "Namespace": {1: _METADATA},
    "ConfigMap": {1: _METADATA, 2: Field("data", _nested(_PAIR), mapped=True)},
    "Secret": {1: _METADATA, 2: Field("data", _nested(_SECRET_PAIR), mapped=True), 3: Field("type", _text)},
    "RoleBinding": _ROLE_BINDING,
    "ClusterRoleBinding": _ROLE_BINDING,
}
_TYPE: Message = {1: Field("apiVersion", _text), 2: Field("kind", _text)}
_ENVELOPE: Message = {1: Field("type", _nested(_TYPE)), 2: Field("raw", bytes)}


def decode_object(payload: bytes) -> Json:
    """The object in an enveloped body; 415 for kinds that are not in the tables."""
    if not payload.startswith(_MAGIC):
        raise unsupported_media_type()
    envelope = decode_message(payload[len(_MAGIC) :], _ENVELOPE)
    message = _KINDS.get(envelope.get("type", {}).get("kind", ""))
    if message is None:
        raise unsupported_media_type()
    return {**envelope["type"], **decode_message(envelope.get("raw", b""), message)}


def decode_message(payload: bytes, message: Message) -> Json:
    """The known fields of one message; the others are skipped."""
    fields: Json = {}
    for number, raw in _fields(payload):
        field = message.get(number)
        if field is None:
            continue
        value = field.read(raw)
        if field.mapped:
            fields.setdefault(field.name, {})[value.get("key", "")] = value.get("value", "")
        elif field.repeated:
            fields.setdefault(field.name, []).append(value)
        elif value not in ("", {}):
            fields[field.name] = value
    return fields


def _fields(payload: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(payload):
        tag, at = _varint(payload, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(payload, at)
            yield number, value - (1 << 64) if value >> 63 else value
        elif wire == _LENGTH:
            size, at = _varint(payload, at)
            yield number, payload[at : at + size]
            at += size
        else:
            at += _skipped(wire)


def _skipped(wire: int) -> int:
    if wire not in _FIXED:
        raise unsupported_media_type()
    return _FIXED[wire]


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(payload):
            raise unsupported_media_type()
        byte = payload[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at
