"""Which answers are believed: the sole place where bodies of successful answers come in.

A proxy, a login page, or a connection that is cut answers 200 as well. What such an answer says must not be taken for
an empty list or a done deed, and must not surface as a decoder's complaint: it is an API server that is away for the
moment. So every body is looked over once, whole, for being JSON and of the kind that was asked for; a list's continue
token is read on the same way, so that large pages are not gone through once more.
"""

from dataclasses import dataclass

import msgspec

from rollout.gather.cluster.decode import NO_JSON, garbled
from rollout.gather.cluster.wire import decoder_of

_DISCOVERY = "APIResourceList"
_SUCCESS = b'"Success"'
_BY_NAME = frozenset({"leases", "configmaps"})


class _Meta(msgspec.Struct, frozen=True, gc=False):
    token: str | None = msgspec.field(name="continue", default=None)


class _Body(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    kind: str = ""
    api_version: str = ""
    metadata: _Meta | None = None
    status: msgspec.Raw = msgspec.Raw(b"")


def continue_token(body: bytes, method: str, path: str) -> str:
    """Return the token of the page that follows, empty where none does.

    Raises:
        ApiUnavailableError: The body is no answer of an API server to this request.
    """
    request = f"{method} {path}"
    try:
        read = decoder_of(_Body).decode(body)
    except NO_JSON as error:
        raise garbled(request, error) from error
    address = _Address.of(path)
    if address is not None and not _is_answer(read, method, address):
        raise garbled(request, f"it is of kind {read.kind or 'unknown'} ({read.api_version or 'no version'})")
    return (read.metadata.token if read.metadata else None) or ""


@dataclass(frozen=True, slots=True)
class _Address:
    """What a path is about. `version` is group/version; without a `resource` it is the list of those served."""

    version: str
    resource: str = ""
    name: str = ""
    subresource: str = ""

    @classmethod
    def of(cls, path: str) -> "_Address | None":
        """None for addresses such as /version, whose answers are of no kind."""
        match path.strip("/").split("/"):
            case ["api", version, *rest]:
                return cls._within(version, rest)
            case ["apis", group, version, *rest]:
                return cls._within(f"{group}/{version}", rest)
            case _:
                return None

    @classmethod
    def _within(cls, version: str, parts: list[str]) -> "_Address":
        match parts:
            case ["namespaces", _, resource, *rest]:
                return cls(version, resource, *rest[:2])
            case _:
                return cls(version, *parts[:3])


def right_for(method: str, path: str) -> str:
    """Name the right that a request takes, as far as it can be told apart: on which kind, and on which object.

    Rights to Leases and ConfigMaps go by the object; to others, by the kind.
    """
    address = _Address.of(path)
    if address is None or address.resource in _BY_NAME:
        return f"{method} {path}"
    return f"{method} {address.version} {address.resource} {address.subresource} {bool(address.name)}"


def _is_answer(read: _Body, method: str, address: _Address) -> bool:
    if not address.resource:
        return read.kind == _DISCOVERY
    if address.subresource and read.kind.lower() == address.subresource:
        return True
    if read.kind == "Status":
        # The answer to a deed that leaves no object, or not this one, behind.
        return (method == "DELETE" or bool(address.subresource)) and bytes(read.status) == _SUCCESS
    is_list = method == "GET" and not address.name
    kind = read.kind.removesuffix("List") if is_list and read.kind.endswith("List") else read.kind
    return read.api_version == address.version and _plural(kind) == address.resource and (kind != read.kind) == is_list


def _plural(kind: str) -> str:
    """Return the resource of a kind, by the rule that Kubernetes' own clients guess it by."""
    word = kind.lower()
    if word.endswith(("s", "x", "ch", "sh")):
        return f"{word}es"
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
