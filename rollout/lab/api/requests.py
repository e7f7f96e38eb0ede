"""What a client asks: an address turned into verb, resource, namespace and name, and the log of it all."""

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rollout.lab.api.resources import NAMESPACES, SERVED, Resource

_BY_ADDRESS: dict[tuple[str, str, str], Resource] = {
    (resource.group, resource.version, resource.plural): resource for resource in SERVED
}
_OBJECT_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create"}


# What addresses lead to that are no resource's.
NOTHING: Final = Resource("", "", "")


@dataclass(frozen=True, slots=True)
class Target:
    """Whom a request is about."""

    verb: str
    path: str
    resource: Resource = NOTHING
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def plural(self) -> str:
        """`pods`, `pods/eviction`, empty."""
        return (
            f"{self.resource.plural}/{self.subresource}"
            if self.subresource
            else self.resource.plural
        )


# Group, version, namespace, plural, name and subresource. A namespace itself is an object of no
# namespace, and its subresource `status` is nothing that lies in it.
_ADDRESS: Final = re.compile(
    r"/(?:api|apis/([^/]+))/([^/]+)"
    r"(?:/namespaces/([^/]+)(?=/(?!status)[^/]))?"
    r"/([^/]+)(?:/([^/]+)(?:/([^/]+))?)?/?"
)


def parse_target(method: str, path: str, query: Mapping[str, str]) -> Target:
    """Find out what a request is about; an unknown address is a target of nothing.

    Objects of a namespaced resource are addressed through their namespace, others never.
    """
    match = _ADDRESS.fullmatch(path)
    group, version, namespace, plural, name, subresource = match.groups("") if match else ("",) * 6
    resource = _BY_ADDRESS.get((group, version, plural))
    if resource is None or (name and not namespace if resource.namespaced else namespace):
        return Target(method.lower(), path)
    verb = _verb(method, query, named=bool(name), subresource=subresource)
    return Target(
        verb, path, resource, subresource, name if resource is NAMESPACES else namespace, name
    )


def _verb(method: str, query: Mapping[str, str], *, named: bool, subresource: str) -> str:
    if named:
        return (
            "create"
            if method == "POST" and subresource
            else _OBJECT_VERBS.get(method, method.lower())
        )
    if method == "GET" and query.get("watch", "") in {"1", "true"}:
        return "watch"
    return _COLLECTION_VERBS.get(method, f"{method.lower()}collection")


@dataclass(frozen=True, slots=True)
class Call:
    """One request, read from the wire."""

    target: Target
    query: Mapping[str, str]
    accept: str = ""
    content_type: str = "application/json"
    payload: bytes = b""
    user_agent: str = ""

    @property
    def manager(self) -> str:
        """The field manager: as the client says, else by its name."""
        return self.query.get("fieldManager") or self.user_agent.partition("/")[0] or "unknown"

    @property
    def dry_run(self) -> bool:
        """Whether it is only tried."""
        return self.query.get("dryRun") == "All"


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request as it was answered; `at` is monotonic seconds, `status` 0 where no answer was given."""

    at: float
    method: str
    target: Target
    query: Mapping[str, str]
    status: int
    user_agent: str = ""
    body: str = ""

    @property
    def path(self) -> str:
        """The address without its query."""
        return self.target.path


class RequestLog(deque[RequestRecord]):
    """The latest requests, oldest first; the oldest of all are forgotten."""

    def __init__(self) -> None:
        super().__init__(maxlen=50_000)

    def asked(self, verb: str, plural: str = "", name: str = "") -> list[RequestRecord]:
        """Return records of a verb on a resource (`pods`, `pods/eviction`), and of one object if named."""
        return [
            record
            for record in self
            if record.target.verb == verb
            and (not plural or record.target.plural == plural)
            and (not name or record.target.name == name)
        ]
