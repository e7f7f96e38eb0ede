"""Reads and writes documents that processes share in ConfigMaps.

Others may write them, so the size is limited, and a document is understood completely or not at
all.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rollout.errors import ApiConflictError, ApiError, ApiNotFoundError, ApiUnavailableError
from rollout.model import marks
from rollout.model.fleetlock import NO_SLOTS, Slots, is_fleetlock_run, is_group
from rollout.model.json_text import DECODE_ERRORS
from rollout.model.memory import (
    MOST_NODES,
    MOST_NODES_OF_VERSION,
    MOST_VERSIONS,
    NO_MEMORY,
    Memory,
    NodeFailures,
    VersionFailures,
)
from rollout.model.text import counted, excerpt, is_object_name, is_run_id, is_version
from rollout.model.timestamps import parse_timestamp
from rollout.ports import ClusterApi

T = TypeVar("T")

_FORMAT = "1.0"
_MOST_FAILURES = 1_000_000
_YEARS = range(1970, 9000)
# In bytes: a ConfigMap's 1 MiB, and managed fields.
_LARGEST_BODY = 4 << 20
DRY = {"dryRun": "All"}
# Dry runs do not ask webhooks with side effects.
_NO_DRY_RUN = "does not support dry run"


class _ConfigMapData(msgspec.Struct, rename="camel"):
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


class _FormatHeader(msgspec.Struct):
    format_version: str


class NotUnderstoodError(ApiError):
    """The document is garbled, or of another version."""


class Stored(Struct, Generic[T], frozen=True):
    content: T
    # None if it does not exist.
    config_map: dict[str, Any] | None


class StoredText(NamedTuple):
    """None for a missing key or ConfigMap."""

    text: str | None
    config_map: dict[str, Any] | None


class Document(Struct, frozen=True):
    """A key of a ConfigMap."""

    namespace: str
    name: str
    key: str

    @property
    def origin(self) -> str:
        return f"ConfigMap {self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps/{self.name}"

    @property
    def collection(self) -> str:
        return self.path.rpartition("/")[0]

    def read(self, api: ClusterApi) -> StoredText:
        """Return the text, and the ConfigMap, which is needed to replace it.

        Raises `NotUnderstoodError`.
        """
        try:
            body = api.get(self.path)
        except ApiNotFoundError:
            return StoredText(None, None)
        if len(body) > _LARGEST_BODY:
            raise NotUnderstoodError(f"{self.origin} is larger than {_LARGEST_BODY >> 20} MiB")
        try:
            config_map = msgspec.json.decode(body, type=dict[str, Any])
            known = msgspec.convert(config_map, type=_ConfigMapData)
        except DECODE_ERRORS as error:
            raise NotUnderstoodError(f"{self.origin} is invalid: {excerpt(str(error))}") from error
        if self.key in (known.binary_data or {}):
            raise NotUnderstoodError(f"{self.origin} is invalid: it has {self.key} in binaryData")
        return StoredText((known.data or {}).get(self.key), config_map)

    def parse(self, text: str, shape: type[T], why_implausible: Callable[[T], str]) -> T:
        """Raise `NotUnderstoodError` for what this version does not know."""
        try:
            version = msgspec.json.decode(text, type=_FormatHeader).format_version
            major, _, _ = version.partition(".")
            own_major, _, _ = _FORMAT.partition(".")
            # Newer minor versions only add fields.
            if major != own_major:
                raise NotUnderstoodError(
                    f"{self.origin} has the format {excerpt(version, 20)}, of another version of"
                    " rollout"
                )
            content = msgspec.json.decode(text, type=shape)
            problem = why_implausible(content)
        except DECODE_ERRORS as error:
            raise NotUnderstoodError(
                f"{self.origin} is invalid or was written by another version of rollout:"
                f" {excerpt(str(error))}"
            ) from error
        if problem:
            raise NotUnderstoodError(f"{self.origin} is invalid: {excerpt(problem)}")
        return content

    def with_content(self, content: object, config_map: dict[str, Any] | None) -> dict[str, Any]:
        """Return the ConfigMap with `content`, a Struct.

        Stored keys that only a newer rollout knows stay.
        """
        fields = {
            name: value
            for name, value in msgspec.to_builtins(content).items()
            if value not in (None, "", False)
        }
        fields = {"format_version": _FORMAT, **self._with_unknown_keys(fields, content, config_map)}
        return self._with_text(msgspec.json.encode(fields).decode(), config_map)

    def _with_unknown_keys(
        self, fields: dict[str, Any], content: object, config_map: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Add stored keys that this version does not know."""
        text = ((config_map or {}).get("data") or {}).get(self.key, "")
        try:
            known = msgspec.to_builtins(self.parse(text, type(content), _accept_any))
            stored = self.parse(text, dict[str, Any], _accept_any)
        except NotUnderstoodError:
            return fields
        all_fields = _unknown_keys(stored, known)
        for name, value in fields.items():
            old_value = known[name]
            if value == old_value:
                all_fields[name] = stored.get(name, value)
            elif isinstance(value, dict) and old_value:
                all_fields[name] = _with_unknown_keys_inside(value, stored[name], old_value)
            else:
                all_fields[name] = value
        return all_fields

    def why_unwritable(self, api: ClusterApi) -> ApiError | None:
        """Return why a dry run cannot write, or None.

        The API server checks rights, immutability, quotas and webhooks. Raises
        `ApiUnavailableError`.
        """
        try:
            text, config_map = self.read(api)
            # Even an immutable ConfigMap accepts its own content.
            body = self._with_text(f"{text or ''}\n", config_map)
            if config_map is None:
                api.create(self.collection, body, DRY)
            else:
                api.replace(self.path, body, DRY)
        except ApiUnavailableError:
            raise
        except ApiConflictError:
            # Someone else could write it.
            return None
        except ApiError as error:
            # A webhook that dry runs cannot ask may allow it.
            is_unknown = _NO_DRY_RUN in error.message
            return None if is_unknown else error
        return None

    def hint_for(self, refusal: ApiError) -> str:
        if refusal.hint:
            return refusal.hint.replace("NAMESPACE", self.namespace)
        delete = f"kubectl -n {self.namespace} delete configmap {self.name}"
        return f"Allow it. If the ConfigMap is immutable or damaged, delete it: {delete}"

    def _with_text(self, text: str, config_map: dict[str, Any] | None) -> dict[str, Any]:
        base = config_map or {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name, "namespace": self.namespace},
        }
        return {**base, "data": {**(base.get("data") or {}), self.key: text}}


def _accept_any(_content: object) -> str:
    return ""


def _unknown_keys(stored: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in stored.items() if key not in known}


def _with_unknown_keys_inside(
    entries: Mapping[str, Any], stored: Mapping[str, Any], known: Mapping[str, Any]
) -> dict[str, Any]:
    all_entries = {}
    for name, entry in entries.items():
        was_stored = name in known
        if isinstance(entry, dict) and was_stored:
            all_entries[name] = _unknown_keys(stored[name], known[name]) | entry
        else:
            all_entries[name] = entry
    return all_entries


_MEMORY_KEY = "memory.json"
_SLOTS_KEY = "slots.json"


def memory_document(namespace: str) -> Document:
    return Document(namespace, marks.MEMORY_NAME, _MEMORY_KEY)


def read_memory(api: ClusterApi, namespace: str) -> Memory:
    """Return an empty memory with `why_unreadable` if it is unusable."""
    try:
        return read_stored_memory(api, namespace).content
    except ApiError as error:
        if not error.is_forbidden:
            raise
        return replace(
            NO_MEMORY,
            why_unreadable=f"{memory_document(namespace).origin} cannot be read: {error.message}",
            denied=True,
        )


def read_stored_memory(api: ClusterApi, namespace: str) -> Stored[Memory]:
    """Return an empty memory with `why_unreadable` if it is garbled."""
    document = memory_document(namespace)
    # None would mean that no ConfigMap exists.
    config_map: dict[str, Any] | None = {}
    memory = NO_MEMORY
    try:
        text, config_map = document.read(api)
        if text is not None:
            memory = document.parse(text, Memory, _why_memory_implausible)
    except NotUnderstoodError as error:
        memory = replace(NO_MEMORY, why_unreadable=error.message)
    return Stored(memory, config_map)


def _why_memory_implausible(memory: Memory) -> str:
    return next(_find_implausible(memory), "")


def _find_implausible(memory: Memory) -> Iterator[str]:
    if memory.why_unreadable or memory.denied:
        yield "it contains a field that rollout never stores"
    if len(memory.nodes) > MOST_NODES or len(memory.versions) > MOST_VERSIONS:
        yield f"it has {len(memory.nodes)} nodes and {len(memory.versions)} versions"
    yield from _find_implausible_nodes(memory.nodes)
    yield from _find_implausible_versions(memory.versions)
    has_valid_times = all(_is_time(time) for time in memory.evidence.values())
    if len(memory.evidence) > MOST_VERSIONS or not has_valid_times:
        yield f"it has evidence of {len(memory.evidence)} versions, or an invalid time of one"
    if memory.pause and memory.pause.until and not _is_time(memory.pause.until):
        yield f"its pause ends at {memory.pause.until!r}"
    missed = memory.missed_deadline
    if missed is not None:
        # Empty if more than two years away.
        has_valid_finish = not missed.finish or _is_time(missed.finish)
        if not (_is_time(missed.by) and has_valid_finish and _is_time(missed.since)):
            times = f"{missed.by!r}, {missed.finish!r} or {missed.since!r}"
            yield f"its missed deadline has an invalid time: {times}"


def _find_implausible_nodes(nodes: Mapping[str, NodeFailures]) -> Iterator[str]:
    for name, failures in nodes.items():
        if not is_object_name(name):
            yield f"{name!r} is not a Node name"
        has_valid_count = 1 <= failures.failures <= _MOST_FAILURES
        if not has_valid_count or not _is_time(failures.at):
            times = counted(failures.failures, "time")
            yield f"{name} failed {times}, most recently at {failures.at!r}"


def _find_implausible_versions(versions: Mapping[str, VersionFailures]) -> Iterator[str]:
    for version, failed in versions.items():
        if not is_version(version) or len(failed.nodes) > MOST_NODES_OF_VERSION:
            yield f"the version {version!r} with {len(failed.nodes)} nodes"
        for name in failed.nodes:
            if not is_object_name(name):
                yield f"{name!r} is not a Node name"


def _is_time(stamp: str) -> bool:
    at = parse_timestamp(stamp)
    return at is not None and _YEARS.start <= at.year < _YEARS.stop


def slots_document(namespace: str) -> Document:
    return Document(namespace, marks.SLOTS_NAME, _SLOTS_KEY)


def read_slots(api: ClusterApi, namespace: str) -> Slots:
    return read_stored_slots(api, namespace).content


def read_stored_slots(api: ClusterApi, namespace: str) -> Stored[Slots]:
    document = slots_document(namespace)
    text, config_map = document.read(api)
    slots = NO_SLOTS if text is None else document.parse(text, Slots, _why_slots_implausible)
    return Stored(slots, config_map)


def _why_slots_implausible(slots: Slots) -> str:
    """Return what rollout never writes, as a noun phrase, or empty."""
    for slot in slots.all:
        has_valid_run_id = is_run_id(slot.run_id) and is_fleetlock_run(slot.run_id)
        if not (is_object_name(slot.node) and has_valid_run_id):
            return f"a slot of {slot.node!r}, for rollout {slot.run_id!r}"
        if not (is_group(slot.group) and slot.node_uid and slot.boot_id):
            return f"a slot of {slot.node!r} in the group {slot.group!r}"
    nodes = {slot.node for slot in slots.all}
    return "one node holds two slots" if len(nodes) != len(slots.all) else ""
