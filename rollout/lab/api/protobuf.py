"""Bodies in protobuf, which kubectl sends for `auth can-i`, `drain` and `create`.

Source of the field numbers: the published Kubernetes API definitions.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from rollout.lab.api.statuses import unsupported_media_type
from rollout.lab.api.store import Json

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\0"
_VARINT = 0
_LENGTH = 2


class _ProtobufField(Struct, frozen=True):
    name: str
    read: Callable[[Any], Any]
    repeated: bool = False


_Message = Mapping[int, _ProtobufField]


def _text(raw: bytes) -> str:
    return bytes(raw).decode(errors="replace")


def _texts(*names: str) -> dict[int, _ProtobufField]:
    """Return text fields numbered from 1; an empty name skips a number."""
    return {number: _ProtobufField(name, _text) for number, name in enumerate(names, 1) if name}


def _nested_field(name: str, message: _Message, *, repeated: bool = False) -> _ProtobufField:
    return _ProtobufField(name, lambda raw: _decode(bytes(raw), message), repeated)


def _map_field(name: str, read: Callable[[Any], Any] = _text) -> _ProtobufField:
    pair = {1: _ProtobufField("key", _text), 2: _ProtobufField("value", read)}

    def entry(raw: bytes) -> Json:
        fields = _decode(bytes(raw), pair)
        return {fields.get("key", ""): fields.get("value", "")}

    return _ProtobufField(name, entry)


_METADATA: Final = _nested_field(
    "metadata",
    {
        **_texts("name", "generateName", "namespace", "", "uid", "resourceVersion"),
        11: _map_field("labels"),
        12: _map_field("annotations"),
    },
)
_DELETE_OPTIONS: Final[_Message] = {
    1: _ProtobufField("gracePeriodSeconds", int),
    2: _nested_field("preconditions", _texts("uid")),
    5: _ProtobufField("dryRun", _text, repeated=True),
}
_ATTRIBUTES: Final = _texts(
    "namespace", "verb", "group", "version", "resource", "subresource", "name"
)
_ROLE_BINDING: Final[_Message] = {
    1: _METADATA,
    2: _nested_field("subjects", _texts("kind", "apiGroup", "name", "namespace"), repeated=True),
    3: _nested_field("roleRef", _texts("apiGroup", "kind", "name")),
}
_KINDS: Final[Mapping[str, _Message]] = {
    "Eviction": {1: _METADATA, 2: _nested_field("deleteOptions", _DELETE_OPTIONS)},
    "DeleteOptions": _DELETE_OPTIONS,
    "SelfSubjectAccessReview": {
        1: _METADATA,
        2: _nested_field("spec", {1: _nested_field("resourceAttributes", _ATTRIBUTES)}),
    },
    "Secret": {
        1: _METADATA,
        2: _map_field("data", lambda raw: b64encode(bytes(raw)).decode()),
        3: _ProtobufField("type", _text),
    },
    "RoleBinding": _ROLE_BINDING,
    "ClusterRoleBinding": _ROLE_BINDING,
}
_ENVELOPE: Final[_Message] = {
    1: _nested_field("type", _texts("apiVersion", "kind")),
    2: _ProtobufField("raw", bytes),
}


def decode_object(payload: bytes) -> Json:
    try:
        envelope = _decode(payload.removeprefix(_MAGIC), _ENVELOPE)
        message = _KINDS[envelope["type"]["kind"]]
        return {**envelope["type"], **_decode(envelope.get("raw", b""), message)}
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise unsupported_media_type() from error


def _decode(payload: bytes, message: _Message) -> Json:
    fields: Json = {}
    for number, raw in _fields(payload):
        field = message.get(number)
        if field is None:
            continue
        value = field.read(raw)
        if value in ("", {}):
            continue
        if field.repeated:
            fields.setdefault(field.name, []).append(value)
        elif isinstance(value, dict):
            fields[field.name] = {**fields.get(field.name, {}), **value}
        else:
            fields[field.name] = value
    return fields


def _fields(payload: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(payload):
        tag, at = _varint(payload, at)
        value, at = _varint(payload, at)
        if tag & 7 == _LENGTH:
            yield tag >> 3, payload[at : at + value]
            at += value
        elif tag & 7 == _VARINT:
            # Negative numbers are 64 bits in two's complement.
            yield tag >> 3, value - (1 << 64) if value >> 63 else value
        else:
            raise ValueError(f"no wire type of these messages: {tag & 7}")


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    """Return a variable-length integer and the position after it."""
    value = 0
    shift = 0
    while True:
        byte = payload[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if not byte & 0x80:
            return value, at
