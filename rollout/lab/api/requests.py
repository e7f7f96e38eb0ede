import re
from collections import deque
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from rollout.lab.api.resources import NAMESPACES, SERVED, Resource

_BY_ADDRESS: dict[tuple[str, str, str], Resource] = {
    (resource.group, resource.version, resource.plural): resource for resource in SERVED
}
_OBJECT_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create"}


# The resource of URLs that belong to no resource.
NOTHING: Final = Resource("", "", "")


class Target(Struct, frozen=True):
    verb: str
    path: str
    resource: Resource = NOTHING
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def plural(self) -> str:
        if self.subresource:
            return f"{self.resource.plural}/{self.subresource}"
        return self.resource.plural


# A namespace itself is cluster-scoped, and its `status` is no resource in it.
_ADDRESS: Final = re.compile(
    r"/(?:api|apis/([^/]+))/([^/]+)"
    r"(?:/namespaces/([^/]+)(?=/(?!status)[^/]))?"
    r"/([^/]+)(?:/([^/]+)(?:/([^/]+))?)?/?"
)


def parse_target(method: str, path: str, query: Mapping[str, str]) -> Target:
    unknown = Target(method.lower(), path)
    match = _ADDRESS.fullmatch(path)
    if match is None:
        return unknown
    group, version, namespace, plural, name, subresource = match.groups("")
    resource = _BY_ADDRESS.get((group, version, plural))
    if resource is None:
        return unknown
    if resource.namespaced and name and not namespace:
        return unknown
    if not resource.namespaced and namespace:
        return unknown
    return Target(
        verb=_verb(method, query, is_object=bool(name), subresource=subresource),
        path=path,
        resource=resource,
        subresource=subresource,
        namespace=name if resource is NAMESPACES else namespace,
        name=name,
    )


def _verb(method: str, query: Mapping[str, str], *, is_object: bool, subresource: str) -> str:
    if is_object:
        if method == "POST" and subresource:
            return "create"
        return _OBJECT_VERBS.get(method, method.lower())
    if method == "GET" and query.get("watch", "") in {"1", "true"}:
        return "watch"
    return _COLLECTION_VERBS.get(method, f"{method.lower()}collection")


class Call(Struct, frozen=True):
    target: Target
    query: Mapping[str, str]
    accept: str = ""
    content_type: str = "application/json"
    payload: bytes = b""
    user_agent: str = ""

    @property
    def manager(self) -> str:
        return self.query.get("fieldManager") or self.user_agent.partition("/")[0] or "unknown"

    @property
    def dry_run(self) -> bool:
        return self.query.get("dryRun") == "All"


class RequestRecord(Struct, frozen=True):
    """`at` is monotonic seconds; `status` is 0 without an answer."""

    at: float
    method: str
    target: Target
    query: Mapping[str, str]
    status: int
    user_agent: str = ""
    body: str = ""

    @property
    def path(self) -> str:
        return self.target.path


class RequestLog(deque[RequestRecord]):
    def __init__(self) -> None:
        super().__init__(maxlen=50_000)

    def asked(self, verb: str, plural: str = "", name: str = "") -> list[RequestRecord]:
        return [
            record
            for record in self
            if record.target.verb == verb
            and (not plural or record.target.plural == plural)
            and (not name or record.target.name == name)
        ]
