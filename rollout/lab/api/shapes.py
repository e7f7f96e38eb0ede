"""Of which JSON type the fields are that clients of this cluster write: what a server cannot even decode.

A real server decodes into typed structures before it looks at anything: a number where a text is expected is a bad
request, whatever the rules about that field are.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from rollout.lab.api.resources import BUDGETS, CONFIGMAPS, EVENTS, LEASES, NODES, Resource
from rollout.lab.api.statuses import StatusError, bad_request, invalid_patch
from rollout.lab.api.store import Json

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_MICRO_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_mapping(value: object) -> bool:
    return isinstance(value, dict)


def _is_texts(value: object) -> bool:
    return isinstance(value, dict) and all(each is None or isinstance(each, str) for each in value.values())


def _is_bytes(value: object) -> bool:
    return _is_texts(value) and isinstance(value, dict) and all(map(_is_base64, value.values()))


def _is_base64(value: str) -> bool:
    try:
        base64.b64decode(value, validate=True)
    except binascii.Error:
        return False
    return True


def _is_moment(value: object) -> bool:
    return isinstance(value, str) and _MOMENT.fullmatch(value) is not None


def _is_micro_moment(value: object) -> bool:
    return isinstance(value, str) and _MICRO_MOMENT.fullmatch(value) is not None


def _is_amount(value: object) -> bool:
    return _is_text(value) or _is_whole(value)


Shapes = Mapping[str, Callable[[object], bool]]

# Parents stand before their children.
_EVERYWHERE: Final[Shapes] = {
    "metadata": _is_mapping,
    **{f"metadata.{name}": _is_text for name in ("name", "generateName", "namespace", "uid", "resourceVersion")},
    "metadata.labels": _is_texts,
    "metadata.annotations": _is_texts,
    "metadata.finalizers": _is_list,
    "metadata.ownerReferences": _is_list,
    "spec": _is_mapping,
    "spec.taints": _is_list,
    "spec.containers": _is_list,
    "status": _is_mapping,
    "status.conditions": _is_list,
}
_OF: Final[Mapping[Resource, Shapes]] = {
    NODES: {"spec.unschedulable": _is_flag},
    LEASES: {
        "spec.holderIdentity": _is_text,
        "spec.leaseDurationSeconds": _is_whole,
        "spec.leaseTransitions": _is_whole,
        "spec.acquireTime": _is_micro_moment,
        "spec.renewTime": _is_micro_moment,
    },
    CONFIGMAPS: {"data": _is_texts, "binaryData": _is_bytes, "immutable": _is_flag},
    EVENTS: {
        "involvedObject": _is_mapping,
        **dict.fromkeys(("reason", "message", "type", "reportingComponent", "reportingInstance"), _is_text),
        "count": _is_whole,
        "firstTimestamp": _is_moment,
        "lastTimestamp": _is_moment,
        "eventTime": _is_micro_moment,
    },
    BUDGETS: {"spec.minAvailable": _is_amount, "spec.maxUnavailable": _is_amount},
}


def check_shape(resource: Resource, obj: Json) -> None:
    """Raise a 400 where a part of the body is of another JSON type than it has to be."""
    path = _misshapen(resource, obj)
    if path:
        raise bad_request(_undecodable(resource, path))


def check_patched_shape(resource: Resource, obj: Json) -> None:
    """Raise a 422 where a patch has made such a thing of the object."""
    path = _misshapen(resource, obj)
    if path:
        raise _invalid_result(resource, path)


def _invalid_result(resource: Resource, path: str) -> StatusError:
    return invalid_patch(_undecodable(resource, path))


def _misshapen(resource: Resource, obj: Json) -> str:
    """Path of the first field that cannot be decoded; empty where all can."""
    shapes = {**_EVERYWHERE, **_OF.get(resource, {})}
    return next((path for path, fits in shapes.items() if not _fits(_at(obj, path), fits)), "")


def _fits(value: object, fits: Callable[[object], bool]) -> bool:
    return value is None or fits(value)


def _at(obj: Any, path: str) -> object:
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def _undecodable(resource: Resource, path: str) -> str:
    return (
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: json: cannot '
        f"unmarshal into Go struct field {resource.kind}.{path}"
    )
