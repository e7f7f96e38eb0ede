"""Of which JSON type the fields are that clients of this cluster write: what a server cannot even decode.

A real server decodes into typed structures before it looks at anything: a number where a text is expected is a bad
request, whatever the rules about that field are.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypedDict

import msgspec

from rollout.lab.api.resources import BUDGETS, CONFIGMAPS, EVENTS, LEASES, NODES, Resource
from rollout.lab.api.statuses import bad_request, invalid_patch
from rollout.lab.api.store import Json

_ZONE: Final = r"(Z|[+-]\d\d:\d\d)\Z"
_Moment = Annotated[str, msgspec.Meta(pattern=rf"^\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?{_ZONE}")] | None
_MicroMoment = Annotated[str, msgspec.Meta(pattern=rf"^\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{6}}{_ZONE}")] | None
_Texts = dict[str, str | None] | None
_List = list[Any] | None
_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)] | None


class _Metadata(TypedDict, total=False):
    name: str | None
    generateName: str | None
    namespace: str | None
    uid: str | None
    resourceVersion: str | None
    labels: _Texts
    annotations: _Texts
    finalizers: _List
    ownerReferences: _List


class _Spec(TypedDict, total=False):
    taints: _List
    containers: _List


class _Status(TypedDict, total=False):
    conditions: _List


class _Object(TypedDict, total=False):
    metadata: _Metadata | None
    spec: _Spec | None
    status: _Status | None


class _Taint(TypedDict, total=False):
    key: str | None
    value: str | None
    effect: str | None
    timeAdded: _Moment


class _NodeSpec(TypedDict, total=False):
    unschedulable: bool | None
    taints: list[_Taint] | None


class _Node(TypedDict, total=False):
    spec: _NodeSpec | None


class _LeaseSpec(TypedDict, total=False):
    holderIdentity: str | None
    leaseDurationSeconds: _Int32
    leaseTransitions: _Int32
    acquireTime: _MicroMoment
    renewTime: _MicroMoment


class _Lease(TypedDict, total=False):
    spec: _LeaseSpec | None


class _ConfigMap(TypedDict, total=False):
    data: _Texts
    binaryData: dict[str, bytes | None] | None
    immutable: bool | None


class _Series(TypedDict, total=False):
    count: _Int32
    lastObservedTime: _MicroMoment


class _Event(TypedDict, total=False):
    involvedObject: dict[str, Any] | None
    reason: str | None
    message: str | None
    type: str | None
    reportingComponent: str | None
    reportingInstance: str | None
    series: _Series | None
    count: _Int32
    firstTimestamp: _Moment
    lastTimestamp: _Moment
    eventTime: _MicroMoment


class _BudgetSpec(TypedDict, total=False):
    minAvailable: str | int | None
    maxUnavailable: str | int | None


class _Budget(TypedDict, total=False):
    spec: _BudgetSpec | None


_OF: Final[Mapping[Resource, Any]] = {
    NODES: _Node,
    LEASES: _Lease,
    CONFIGMAPS: _ConfigMap,
    EVENTS: _Event,
    BUDGETS: _Budget,
}


def check_shape(resource: Resource, obj: Json) -> None:
    """Raise a 400 where a part of the body is of another JSON type than it has to be."""
    if why := _undecodable(resource, obj):
        raise bad_request(why)


def check_patched_shape(resource: Resource, obj: Json) -> None:
    """Raise a 422 where a patch has made such a thing of the object."""
    if why := _undecodable(resource, obj):
        raise invalid_patch(why)


def _undecodable(resource: Resource, obj: Json) -> str:
    """What is said of the first field that cannot be decoded; empty where all can."""
    try:
        msgspec.convert(obj, _Object)
        msgspec.convert(obj, _OF.get(resource, _Object))
    except msgspec.ValidationError as error:
        path = re.sub(r".*`\$\.?([\w.]*).*", r"\1", str(error))
        return (
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: json: cannot '
            f"unmarshal into Go struct field {resource.kind}.{path}"
        )
    return ""
