from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from rollout.lab.api import protobuf
from rollout.lab.api.access import AccessControl
from rollout.lab.api.evicting import EvictionEndpoint
from rollout.lab.api.reads import Lists, Watch, watch_of
from rollout.lab.api.representation import (
    JSON,
    encode_body,
    list_body,
    object_body,
    object_inclusion,
)
from rollout.lab.api.requests import NOTHING, Call
from rollout.lab.api.resources import ACCESS_REVIEWS, SUBRESOURCES, discovery, resource_list
from rollout.lab.api.scaling import patch_scale, scale_of, update_scale
from rollout.lab.api.statuses import (
    StatusError,
    bad_request,
    method_not_allowed,
    unknown_path,
    unsupported_media_type,
)
from rollout.lab.api.store import Json, ObjectStore
from rollout.lab.api.writing import Writer, delete_options

_OK = 200
_CREATED = 201
_NOT_FOUND = 404
_TEXT = "text/plain; charset=utf-8"
_HEALTH = frozenset({"/readyz", "/livez", "/healthz", "/livez/ping", "/readyz/ping"})


class EndpointResponse(Struct, frozen=True):
    """If it `breaks_off`, more is announced than is sent."""

    status: int
    payload: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    breaks_off: bool = False


def refused(refusal: StatusError) -> EndpointResponse:
    return EndpointResponse(refusal.code, encode_body(refusal.body()), headers=refusal.headers)


class Endpoints:
    def __init__(self, store: ObjectStore, access: AccessControl) -> None:
        self._store = store
        self._access = access
        self._lists = Lists(store)
        self._writer = Writer(store)
        self._evictor = EvictionEndpoint(store, self._writer)
        self._verbs: dict[str, Callable[[Call], EndpointResponse | Watch]] = {
            "get": self._get,
            "list": self._list,
            "watch": watch_of,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
        }

    def answer(self, call: Call) -> EndpointResponse | Watch:
        resource = call.target.resource
        subresource = call.target.subresource
        verb = call.target.verb
        if resource is NOTHING:
            return self._answer_other(call)
        if subresource and subresource not in resource.subresources:
            raise unknown_path()
        if verb not in (SUBRESOURCES[subresource] if subresource else resource.verbs):
            raise method_not_allowed()
        match subresource:
            case "eviction":
                status = self._evictor.evict(call.target, _body(call), call.query)
                return EndpointResponse(_CREATED, encode_body(status))
            case "scale":
                return EndpointResponse(_OK, encode_body(self._scale(call)))
            case _:
                return self._verbs[verb](call)

    def _get(self, call: Call) -> EndpointResponse:
        return self._object(call, self._current(call))

    def _list(self, call: Call) -> EndpointResponse:
        objects, metadata = self._lists.page(call)
        now = self._store.now()
        body = list_body(
            call.target.resource, objects, metadata, now=now, include=object_inclusion(call)
        )
        return EndpointResponse(_OK, encode_body(body))

    def _create(self, call: Call) -> EndpointResponse:
        resource = call.target.resource
        body = _body(call)
        if resource is ACCESS_REVIEWS:
            return self._object(call, self._access.review(body), _CREATED)
        if resource.namespaced and not call.target.namespace:
            raise method_not_allowed()
        return self._object(call, self._writer.create(call, body), _CREATED)

    def _update(self, call: Call) -> EndpointResponse:
        status = _CREATED if self._writer.is_created_by_update(call.target) else _OK
        return self._object(call, self._writer.update(call, _body(call)), status)

    def _patch(self, call: Call) -> EndpointResponse:
        return self._object(call, self._writer.patch(call, _decode(call.payload)))

    def _delete(self, call: Call) -> EndpointResponse:
        options = delete_options(call.query, _body(call) if call.payload else None)
        current = self._current(call)
        after = self._writer.delete_object(call.target.resource, current, options)
        return self._object(call, after)

    def _scale(self, call: Call) -> Json:
        match call.target.verb:
            case "get":
                return scale_of(self._current(call))
            case "patch":
                return patch_scale(self._writer, call, _decode(call.payload))
            case _:
                return update_scale(self._writer, call, _body(call))

    def _current(self, call: Call) -> Json:
        return self._writer.current(call.target.resource, call.target.name, call.target.namespace)

    def _object(self, call: Call, obj: Json, status: int = _OK) -> EndpointResponse:
        now = self._store.now()
        body = object_body(call.target.resource, obj, now, object_inclusion(call))
        return EndpointResponse(status, encode_body(body))

    def _answer_other(self, call: Call) -> EndpointResponse:
        """Answer URLs that belong to no resource: health, version, discovery."""
        path = call.target.path.rstrip("/")
        match path.split("/"):
            case ["", "apis", group, version, *_] if resource_list(group, version) is None:
                return EndpointResponse(_NOT_FOUND, b"404 page not found\n", _TEXT)
        if call.target.verb != "get":
            raise unknown_path()
        if path in _HEALTH:
            return EndpointResponse(_OK, b"ok", _TEXT)
        body = discovery(path)
        if body is None:
            raise unknown_path()
        return EndpointResponse(_OK, encode_body(body))


def _decode(payload: bytes) -> Any:
    try:
        return msgspec.json.decode(payload)
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding body: {error}") from error


def _body(call: Call) -> Json:
    if call.content_type == protobuf.MEDIA_TYPE:
        return protobuf.decode_object(call.payload)
    if call.content_type not in {JSON, ""}:
        raise unsupported_media_type()
    body = _decode(call.payload)
    if isinstance(body, dict):
        return body
    raise bad_request("the object provided is unrecognized")
