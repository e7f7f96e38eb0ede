"""What a client asks: an address turned into verb, resource, namespace and name, and the log of it all."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from rollout.lab.api.resources import NAMESPACES, SERVED, Resource

_BY_ADDRESS: dict[tuple[str, str, str], Resource] = {
    (resource.group, resource.version, resource.plural): resource for resource in SERVED
}
_OBJECT_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create"}


@dataclass(frozen=True, slots=True)
class Target:
    """Whom a request is about; `resource` is None for addresses that are no resource's."""

    verb: str
    path: str
    resource: Resource | None = None
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def plural(self) -> str:
        """`pods`, `pods/eviction`, empty."""
        if self.resource is None:
            return ""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural


def parse_target(method: str, path: str, query: Mapping[str, str]) -> Target:
    """Find out what a request is about; an unknown address is a target without a resource."""
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["api", version, _, *_]:
            return _resource_target(method, path, query, ("", version), parts[2:])
        case ["apis", group, version, _, *_]:
            return _resource_target(method, path, query, (group, version), parts[3:])
        case _:
            return Target(method.lower(), path)


def _resource_target(
    method: str, path: str, query: Mapping[str, str], version: tuple[str, str], parts: list[str]
) -> Target:
    match parts:
        case ["namespaces", namespace, below, *_] if below != "status":
            parts = parts[2:]
        case _:
            namespace = ""
    plural, name, subresource, *rest = [*parts, "", ""][: max(3, len(parts))]
    resource = _BY_ADDRESS.get((*version, plural))
    if resource is None or rest or not _namespace_fits(resource, namespace, name):
        return Target(method.lower(), path)
    verb = _verb(method, query, named=bool(name), subresource=subresource)
    if resource is NAMESPACES:
        namespace = name
    return Target(verb, path, resource, subresource, namespace, name)


def _namespace_fits(resource: Resource, namespace: str, name: str) -> bool:
    """Objects of a namespaced resource are addressed through their namespace, others never."""
    if not resource.namespaced:
        return not namespace
    return bool(namespace) or not name


def _verb(method: str, query: Mapping[str, str], *, named: bool, subresource: str) -> str:
    if named:
        return "create" if method == "POST" and subresource else _OBJECT_VERBS.get(method, method.lower())
    if method == "GET" and query.get("watch", "") in {"1", "true"}:
        return "watch"
    return _COLLECTION_VERBS.get(method, f"{method.lower()}collection")


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
