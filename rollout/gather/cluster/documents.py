"""A document that several processes keep on the cluster: one key of a ConfigMap beside the record.

Anybody who may write ConfigMaps may have written it, or another version of this program. Reading it takes bounded
memory; whatever else stands in the ConfigMap stays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from rollout.errors import ApiConflictError, ApiError, ApiNotFoundError, ApiUnavailableError
from rollout.model.text import excerpt
from rollout.ports import ClusterApi

T = TypeVar("T")

_FORMAT = "1.0"
_NOT_READ = (msgspec.MsgspecError, UnicodeError, RecursionError)
# In bytes: a ConfigMap holds a mebibyte, and who wrote which field stands beside it.
_LARGEST_BODY = 4 << 20
DRY = {"dryRun": "All"}
# How the API server words that a webhook cannot be asked without doing what it does: what it would say is not known.
_UNASKED = "does not support dry run"


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


class _Header(msgspec.Struct):
    format_version: str


class NotUnderstoodError(ApiError):
    """What stands there is no such document, or (`is_newer`) one of another version of this program."""

    def __init__(self, message: str, *, is_newer: bool = False) -> None:
        super().__init__(message)
        self.is_newer = is_newer


@dataclass(frozen=True, slots=True)
class Stored(Generic[T]):
    """What a document says, and the whole ConfigMap that it was read from, to be written back; None for none."""

    content: T
    body: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Document:
    """Where one stands."""

    namespace: str
    name: str
    key: str

    @property
    def origin(self) -> str:
        """As messages name it."""
        return f"ConfigMap {self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """At which it is read and replaced."""
        return f"/api/v1/namespaces/{self.namespace}/configmaps/{self.name}"

    @property
    def collection(self) -> str:
        """At which it is created."""
        return self.path.rpartition("/")[0]

    def read(self, api: ClusterApi) -> tuple[str | None, dict[str, Any] | None]:
        """Its text, and the whole ConfigMap, to be written back; None for what is not there.

        `ApiError` where the API server does not give it, or gives something else.
        """
        try:
            body = api.get(self.path)
        except ApiNotFoundError:
            return None, None
        if len(body) > _LARGEST_BODY:
            raise ApiError(f"{self.origin} is larger than {_LARGEST_BODY >> 20} MiB")
        try:
            whole = msgspec.json.decode(body, type=dict[str, Any])
            return (msgspec.convert(whole, type=_ConfigMap).data or {}).get(self.key), whole
        except _NOT_READ as error:
            raise ApiError(f"{self.origin} is not understood: {excerpt(str(error))}") from error

    def parsed(self, text: str, shape: type[T], impossible: Callable[[T], str]) -> T:
        """Return a text as this shape, which `impossible` finds no fault with; `NotUnderstoodError`."""
        try:
            version = msgspec.json.decode(text, type=_Header).format_version
            if version.partition(".")[0] != _FORMAT.partition(".")[0]:
                message = f"{self.origin} has the format {excerpt(version, 20)}, of another version of rollout"
                raise NotUnderstoodError(message, is_newer=True)
            content = msgspec.json.decode(text, type=shape)
            wrong = impossible(content)
        except _NOT_READ as error:
            raise NotUnderstoodError(f"{self.origin} is not understood: {excerpt(str(error))}") from error
        if wrong:
            raise NotUnderstoodError(f"{self.origin} is not understood: {excerpt(wrong)}")
        return content

    def written(self, content: object, whole: dict[str, Any] | None) -> dict[str, Any]:
        """Return the ConfigMap with this content, a dataclass, in the version that was read."""
        said = {name: value for name, value in msgspec.to_builtins(content).items() if value not in (None, "", False)}
        return self._with(msgspec.json.encode({"format_version": _FORMAT, **said}).decode(), whole)

    def why_unwritable(self, api: ClusterApi) -> ApiError | None:
        """Why nothing could be written, by the API server's answer to a dry run; None where something could.

        That asks for all at once: rights, a ConfigMap that is immutable, quotas, webhooks. `ApiUnavailableError`.
        """
        return why_refused(lambda: self._rehearse(api))

    def way_out(self, refusal: ApiError) -> str:
        """Return what makes it writable again."""
        delete = f"kubectl -n {self.namespace} delete configmap {self.name}"
        anew = "one that is immutable, or damaged, is begun anew once it is gone"
        return hint_in(self.namespace, refusal) or f"Allow it; {anew}: {delete}"

    def _rehearse(self, api: ClusterApi) -> None:
        text, whole = self.read(api)
        # what it holds already, an immutable one takes
        body = self._with(f"{text or ''}\n", whole)
        if whole is None:
            api.create(self.collection, body, DRY)
        else:
            api.replace(self.path, body, DRY)

    def _with(self, text: str, whole: dict[str, Any] | None) -> dict[str, Any]:
        base = whole or {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name, "namespace": self.namespace},
        }
        return {**base, "data": {**(base.get("data") or {}), self.key: text}}


def hint_in(namespace: str, refusal: ApiError) -> str:
    """Return what the answer advises, of this namespace: the answer itself does not name it."""
    return refusal.hint.replace("NAMESPACE", namespace)


def why_refused(rehearse: Callable[[], object]) -> ApiError | None:
    """Why the API server objects to a dry run, None where it does not, or cannot say; `ApiUnavailableError`."""
    try:
        rehearse()
    except ApiUnavailableError:
        raise
    except ApiConflictError:
        return None
    except ApiError as error:
        return None if _UNASKED in error.message else error
    return None
