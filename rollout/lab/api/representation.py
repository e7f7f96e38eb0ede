"""In which form an answer is wanted, and how it is written: objects, tables, compressed or not."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from rollout.lab.api.columns import columns_of
from rollout.lab.api.listing import Page
from rollout.lab.api.resources import Resource
from rollout.lab.api.statuses import not_acceptable
from rollout.lab.api.store import Json

JSON = "application/json"
AGGREGATED = f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
# Like a real server: smaller answers are not worth the work, larger ones get the cheapest level.
_COMPRESSION_THRESHOLD = 128 * 1024
_COMPRESSION_LEVEL = 1
_GZIP_WINDOW = 31
_META = {"apiVersion": "meta.k8s.io/v1"}


class View(StrEnum):
    """The form of an answer."""

    OBJECT = "object"
    TABLE = "Table"
    DISCOVERY = "APIGroupDiscoveryList"


_VIEWS = {
    "Table": View.TABLE,
    "APIGroupDiscoveryList": View.DISCOVERY,
}
_VIEW_VERSIONS = {View.TABLE: "v1", View.DISCOVERY: "v2"}


def view_of(accept: str) -> View:
    """The first form in an Accept header that is served; raises 406 where none is."""
    for clause in (accept or JSON).split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        if media not in {JSON, "application/*", "*/*"}:
            continue
        named = dict(part.split("=", 1) for part in parameters if "=" in part)
        view = _VIEWS.get(named.get("as", ""), View.OBJECT)
        if "as" not in named or named.get("v") == _VIEW_VERSIONS.get(view):
            return view
    raise not_acceptable([JSON])


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What a table request may say besides: which part of the objects its rows carry."""

    include: str = "Metadata"
    headers: bool = True


def object_body(resource: Resource, obj: Json, view: View, now: datetime, options: TableOptions) -> Json:
    """One object in the wanted form; a Status stays what it is."""
    if obj.get("kind") == "Status":
        return obj
    if view is not View.TABLE:
        return obj
    metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
    return table(resource, [obj], metadata, now, options)


def list_body(resource: Resource, page: Page, view: View, now: datetime, options: TableOptions) -> Json:
    """A page of a list in the wanted form."""
    if view is View.TABLE:
        return table(resource, page.items, page.metadata, now, options)
    return {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": page.metadata,
        "items": [_untyped(obj) for obj in page.items],
    }


def _untyped(obj: Json) -> Json:
    """Items of a list do not repeat what the list says about them."""
    return {key: value for key, value in obj.items() if key not in {"apiVersion", "kind"}}


def partial(obj: Json) -> Json:
    """An object's metadata as an object of its own."""
    return {"kind": "PartialObjectMetadata", **_META, "metadata": obj["metadata"]}


def table(resource: Resource, objects: Iterable[Json], metadata: Json, now: datetime, options: TableOptions) -> Json:
    """Objects as the rows of a table."""
    columns = columns_of(resource)
    body: Json = {"kind": "Table", **_META, "metadata": metadata}
    body["columnDefinitions"] = [column.definition() for column in columns] if options.headers else []
    body["rows"] = [
        {"cells": [column.cell(obj, now) for column in columns], **_carried(obj, options.include)} for obj in objects
    ]
    return body


def _carried(obj: Json, include: str) -> Json:
    match include:
        case "None":
            return {}
        case "Object":
            return {"object": obj}
        case _:
            return {"object": partial(obj)}


def encoded(body: Any) -> bytes:
    """The body as JSON, ended by a newline as servers do."""
    return msgspec.json.encode(body) + b"\n"


def compressed(payload: bytes, accept_encoding: str) -> tuple[bytes, dict[str, str]]:
    """The payload, compressed where the client can read that and it is worth it, and the headers that say so."""
    if len(payload) < _COMPRESSION_THRESHOLD or "gzip" not in accept_encoding:
        return payload, {}
    compressor = zlib.compressobj(_COMPRESSION_LEVEL, wbits=_GZIP_WINDOW)
    packed = compressor.compress(payload) + compressor.flush()
    return packed, {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
