"""From a request to its answer: which part of the API a verb on a resource leads to.

Nothing here knows about connections; the server turns an `Answer` into bytes and a `Watch` into a
stream.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rollout.lab.api import protobuf
from rollout.lab.api.access import Access
from rollout.lab.api.evicting import Evictor
from rollout.lab.api.reads import Lists, Watch, watch_request
from rollout.lab.api.representation import JSON, encoded, list_body, object_body, wants_table
from rollout.lab.api.requests import Target
from rollout.lab.api.resources import ACCESS_REVIEWS, SUBRESOURCES, Resource, discovered, resource_list
from rollout.lab.api.statuses import (
    StatusError,
    bad_request,
    method_not_allowed,
    unknown_path,
    unsupported_media_type,
)
from rollout.lab.api.store import Json, ObjectStore
from rollout.lab.api.writing import Write, Writer, deletion_request, dry_run_asked

_OK, _CREATED, _NOT_FOUND = 200, 201, 404
_TEXT = "text/plain; charset=utf-8"
_HEALTH = frozenset({"/readyz", "/livez", "/healthz", "/livez/ping", "/readyz/ping"})


@dataclass(frozen=True, slots=True)
class Call:
    """One request, read from the wire."""

    target: Target
    query: Mapping[str, str]
    accept: str = ""
    content_type: str = JSON
    payload: bytes = b""
    user_agent: str = ""

    @property
    def manager(self) -> str:
        """The field manager: as the client says, else by its name."""
        return self.query.get("fieldManager") or self.user_agent.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back: encoded already, so that the server need not know what it is.

    Of one that `breaks_off` more is announced than is sent.
    """

    status: int
    payload: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    breaks_off: bool = False


def refused(refusal: StatusError) -> Answer:
    """Return a refusal as an answer."""
    return Answer(refusal.code, encoded(refusal.body()), headers=refusal.headers)


class Endpoints:
    """The whole API but for its transport."""

    def __init__(self, store: ObjectStore, access: Access) -> None:
        self._store = store
        self._access = access
        self._lists = Lists(store)
        self._writer = Writer(store)
        self._evictor = Evictor(store, self._writer)
        self._verbs: dict[str, Callable[[Call, Resource], Answer | Watch]] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
        }

    def answer(self, call: Call) -> Answer | Watch:
        """Answer a request; raises StatusError for every refusal."""
        resource, part = call.target.resource, call.target.subresource
        if resource is None:
            return self._plain(call)
        if part and part not in resource.subresources:
            raise unknown_path()
        if call.target.verb not in (SUBRESOURCES[part] if part else resource.verbs):
            raise method_not_allowed()
        return self._evict(call) if part == "eviction" else self._verbs[call.target.verb](call, resource)

    def _get(self, call: Call, resource: Resource) -> Answer:
        target = call.target
        return self._object(call, resource, self._writer.current(resource, target.name, target.namespace))

    def _list(self, call: Call, resource: Resource) -> Answer:
        objects, metadata = self._lists.page(call.target, resource, call.query)
        return Answer(_OK, encoded(list_body(resource, objects, metadata, self._store.now(), _included(call))))

    def _watch(self, call: Call, resource: Resource) -> Watch:
        return watch_request(call.target, resource, call.query, _included(call))

    def _create(self, call: Call, resource: Resource) -> Answer:
        body = _body(call, resource.kind)
        if resource is ACCESS_REVIEWS:
            return self._object(call, resource, self._access.review(body), _CREATED)
        if resource.namespaced and not call.target.namespace:
            raise method_not_allowed()
        return self._object(call, resource, self._writer.create(_write(call, resource), body), _CREATED)

    def _update(self, call: Call, resource: Resource) -> Answer:
        body, write = _body(call, resource.kind), _write(call, resource)
        status = _CREATED if self._writer.is_made_by_update(write) else _OK
        return self._object(call, resource, self._writer.update(write, body), status)

    def _patch(self, call: Call, resource: Resource) -> Answer:
        patch = _decoded(call.payload)
        return self._object(call, resource, self._writer.patch(_write(call, resource), call.content_type, patch))

    def _delete(self, call: Call, resource: Resource) -> Answer:
        request = deletion_request(call.query, _options(call))
        return self._object(call, resource, self._writer.delete(call.target, resource, request))

    def _evict(self, call: Call) -> Answer:
        body = _body(call, "Eviction")
        done = self._evictor.evict(call.target, body, dry_run=dry_run_asked(call.query))
        return Answer(_CREATED, encoded(done))

    def _object(self, call: Call, resource: Resource, obj: Json, status: int = _OK) -> Answer:
        body = object_body(resource, obj, self._store.now(), _included(call))
        return Answer(status, encoded(body))

    def _plain(self, call: Call) -> Answer:
        """Addresses that are no resource's: health, version, discovery."""
        path = call.target.path.rstrip("/")
        _, base, *parts = f"{path}/".split("/")
        if base == "apis" and parts[2:] and resource_list(*parts[:2]) is None:
            # What no part of the server knows is not answered by the API proper.
            return Answer(_NOT_FOUND, b"404 page not found\n", _TEXT)
        if call.target.verb != "get":
            raise unknown_path()
        if path in _HEALTH:
            return Answer(_OK, b"ok", _TEXT)
        body = discovered(path)
        if body is None:
            raise unknown_path()
        return Answer(_OK, encoded(body))


def _write(call: Call, resource: Resource) -> Write:
    return Write(call.target, resource, dry_run_asked(call.query), call.manager)


def _included(call: Call) -> str:
    """Return what a table is to have of its objects; empty where objects are wanted, no table."""
    return call.query.get("includeObject", "Metadata") if wants_table(call.accept) else ""


def _decoded(payload: bytes) -> Any:
    try:
        return msgspec.json.decode(payload)
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding body: {error}") from error


def _body(call: Call, kind: str) -> Json:
    """Return the object in the body: 415 for another encoding, 400 for something that is no object."""
    if call.content_type == protobuf.MEDIA_TYPE:
        return protobuf.decode_object(call.payload)
    if call.content_type not in {JSON, ""}:
        raise unsupported_media_type()
    body = _decoded(call.payload)
    if isinstance(body, dict):
        return body
    raise bad_request(f"the object provided is unrecognized (must be of type {kind})")


def _options(call: Call) -> Json | None:
    if not call.payload:
        return None
    return _body(call, "DeleteOptions")
