"""A write is one step of the event loop.

So nothing changes an object between its reading and its replacement.
"""

from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from msgspec import Struct

from rollout.lab.api.lifecycle import WITH_GENERATION, deleted_form, put_or_remove, with_defaults
from rollout.lab.api.requests import Call, Target
from rollout.lab.api.resources import BUDGETS, EVENTS, LEASES, NAMESPACES, NODES, Resource
from rollout.lab.api.statuses import (
    already_exists,
    bad_request,
    cause,
    invalid,
    namespace_terminating,
    not_found,
    server_error,
    stale_version,
    unsupported_media_type,
    wrong_precondition,
    wrong_uid_on_update,
)
from rollout.lab.api.store import Json, ObjectStore, timestamp
from rollout.lab.api.validation import check
from rollout.lab.objects import status_of, with_metadata

_OTHER_NAMESPACE: Final = (
    "the namespace of the provided object does not match the namespace sent on the request"
)
_SERVER_OWNED = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
)
_VERSION_REQUIRED = frozenset({LEASES, BUDGETS})
_CREATED_BY_UPDATE = frozenset({LEASES, EVENTS})


class DeleteOptions(Struct, frozen=True):
    grace_seconds: int | None = None
    uid: str = ""
    dry_run: bool = False


def delete_options(query: Mapping[str, str], body: Json | None) -> DeleteOptions:
    """The body wins over the query."""
    options = body or {}
    grace = options.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    dry_run = (query.get("dryRun"), *(options.get("dryRun") or ()))
    try:
        return DeleteOptions(
            grace_seconds=None if grace is None else int(grace),
            uid=(options.get("preconditions") or {}).get("uid") or "",
            dry_run="All" in dry_run,
        )
    except ValueError as error:
        raise bad_request(f"invalid DeleteOptions: {error}") from error


class Writer:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def current(self, resource: Resource, name: str, namespace: str) -> Json:
        obj = self._store.get(resource, name, namespace if resource.namespaced else "")
        if obj is None:
            raise not_found(resource, name)
        return obj

    def check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        if self.current(NAMESPACES, namespace, "")["metadata"].get("deletionTimestamp"):
            raise namespace_terminating(resource, name, namespace)

    def create(self, call: Call, body: Json) -> Json:
        resource = call.target.resource
        namespace = call.target.namespace
        metadata = dict(body.get("metadata") or {})
        if metadata.pop("resourceVersion", ""):
            raise server_error("resourceVersion should not be set on objects to be created")
        for field in _SERVER_OWNED:
            metadata.pop(field, None)
        if resource.namespaced and metadata.setdefault("namespace", namespace) != namespace:
            raise bad_request(_OTHER_NAMESPACE)
        obj = with_defaults(resource, {**body, "metadata": metadata})
        check(resource, obj)
        name = metadata.get("name", "")
        if resource.namespaced:
            self.check_namespace(resource, namespace, name)
        if name and self._store.get(resource, name, metadata.get("namespace", "")) is not None:
            raise already_exists(resource, name)
        now = timestamp(self._store.now())
        obj = with_managers(call, {}, obj, now)
        if not call.dry_run:
            return self._store.create(resource, obj)
        name = name or metadata["generateName"]
        return with_metadata(obj, name=name, uid=str(uuid4()), creationTimestamp=now)

    def update(self, call: Call, body: Json) -> Json:
        target = call.target
        resource = target.resource
        metadata = body.get("metadata") or {}
        name = metadata.get("name")
        namespace = metadata.get("namespace", target.namespace)
        if name != target.name or namespace != target.namespace:
            raise bad_request(
                f"the object ({namespace}/{name}) does not match the URL or the namespace on it"
            )
        if self.is_created_by_update(target):
            # The version does not matter here, but the UID does.
            if metadata.get("uid"):
                raise wrong_uid_on_update(resource, target.name, metadata["uid"], "")
            return self.create(call, {**body, "metadata": {**metadata, "resourceVersion": ""}})
        current = self.current(resource, target.name, target.namespace)
        if resource in _VERSION_REQUIRED and metadata.get("resourceVersion") in {None, "", "0"}:
            message = "Invalid value: 0: must be specified for an update"
            missing = cause("FieldValueInvalid", message, "metadata.resourceVersion")
            raise invalid(resource, target.name, [missing])
        return self.replace(call, current, body)

    def is_created_by_update(self, target: Target) -> bool:
        if target.resource not in _CREATED_BY_UPDATE:
            return False
        return self._store.get(target.resource, target.name, target.namespace) is None

    def patch(self, call: Call, patch: Any) -> Json:
        target = call.target
        current = self.current(target.resource, target.name, target.namespace)
        patched = apply_patch(call.content_type, current, patch)
        metadata = patched.get("metadata") or {}
        if metadata.get("name") != target.name:
            raise bad_request("the name of the object does not match the name on the URL")
        return self.replace(call, current, patched)

    def replace(self, call: Call, current: Json, wanted: Json) -> Json:
        resource = call.target.resource
        _check_uid_and_version(resource, current, wanted.get("metadata") or {})
        allowed = _without_protected_changes(call.target, current, wanted)
        obj = with_defaults(resource, allowed, creating=False)
        check(resource, obj, current)
        obj = with_managers(call, current, obj, timestamp(self._store.now()))
        if call.dry_run:
            return with_metadata(obj, resourceVersion=current["metadata"]["resourceVersion"])
        return put_or_remove(self._store, resource, obj) or obj

    def delete_object(self, resource: Resource, current: Json, options: DeleteOptions) -> Json:
        check_uid(resource, current, options.uid)
        now = self._store.now()
        after = deleted_form(resource, current, now, grace_seconds=options.grace_seconds)
        if options.dry_run:
            return after
        return put_or_remove(self._store, resource, after) or after


def _check_uid_and_version(resource: Resource, current: Json, metadata: Json) -> None:
    stored = current["metadata"]
    uid = metadata.get("uid") or stored["uid"]
    if uid != stored["uid"]:
        raise wrong_uid_on_update(resource, stored["name"], uid, stored["uid"])
    # "0" means any version.
    if metadata.get("resourceVersion") not in {None, "", "0", stored["resourceVersion"]}:
        raise stale_version(resource, stored["name"])


def check_uid(resource: Resource, current: Json, uid: str) -> None:
    """An empty UID means any."""
    stored = current["metadata"]
    if uid not in {"", stored["uid"]}:
        raise wrong_precondition(resource, stored["name"], uid, stored["uid"])


def _without_protected_changes(target: Target, current: Json, wanted: Json) -> Json:
    before = current["metadata"]
    metadata = dict(wanted.get("metadata") or {})
    for field in (*_SERVER_OWNED, "namespace"):
        metadata.pop(field, None)
        if field in before:
            metadata[field] = before[field]
    metadata["name"] = before["name"]
    obj = wanted
    if "status" in target.resource.subresources:
        # A subresource changes only the status, the object itself everything else.
        obj = {**current, "status": status_of(wanted)}
        if not target.subresource:
            obj = {**wanted, "status": status_of(current)}
    if target.resource in WITH_GENERATION and obj.get("spec") != current.get("spec"):
        metadata["generation"] = before.get("generation", 0) + 1
    return {**obj, "metadata": metadata}


# Unlike on a real server, `fieldsV1` has only one level.
_MANAGED: Final = {LEASES: ("spec", "annotations", "labels"), NODES: ("annotations",)}


def with_managers(call: Call, current: Json, obj: Json, now: str) -> Json:
    """Only Leases and Nodes have field managers; `now` is RFC 3339."""
    resource = call.target.resource
    before = _managed_fields(resource, current)
    after = _managed_fields(resource, obj)
    changed: Json = {field: {} for field, value in after.items() if before.get(field) != value}
    times: dict[str, str] = {}
    fields: dict[str, Json] = {}
    for entry in (current.get("metadata") or {}).get("managedFields") or []:
        manager = entry["manager"]
        kept = [field for field in entry["fieldsV1"] if field in after and field not in changed]
        times[manager] = entry["time"]
        fields[manager] = {field: {} for field in kept}
    if changed:
        times[call.manager] = now
        fields[call.manager] = {**fields.get(call.manager, {}), **changed}
    common = {"operation": "Update", "apiVersion": resource.api_version, "fieldsType": "FieldsV1"}
    entries = [
        {**common, "manager": manager, "time": times[manager], "fieldsV1": managed}
        for manager, managed in fields.items()
        if managed
    ]
    return with_metadata(obj, managedFields=entries) if entries else obj


def _managed_fields(resource: Resource, obj: Json) -> Json:
    parts = {"spec": obj.get("spec"), **(obj.get("metadata") or {})}
    fields = {}
    for part in _MANAGED.get(resource, ()):
        for name, value in (parts.get(part) or {}).items():
            fields[f"f:{name}"] = value
    return fields


MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
_MERGE_KEYS: Final = {
    "conditions": "type",
    **dict.fromkeys(("containers", "initContainers", "env", "volumes"), "name"),
    "volumeMounts": "mountPath",
}


def apply_patch(media_type: str, current: Json, patch: Any) -> Json:
    """A strategic merge merges the lists above by their keys and replaces others.

    Directives (`$patch`) are ignored.
    """
    if media_type not in {MERGE, STRATEGIC}:
        raise unsupported_media_type()
    if not isinstance(patch, dict):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal into Go value of type"
            " map[string]interface {}"
        )
    return merge(current, patch, _MERGE_KEYS if media_type == STRATEGIC else {})


def merge(current: Json, patch: Json, merge_keys: Mapping[str, str]) -> Json:
    """Merge by RFC 7386, except for lists with a merge key."""
    merged = dict(current)
    for key, value in patch.items():
        before = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = merge(before if isinstance(before, dict) else {}, value, merge_keys)
        elif key in merge_keys:
            merged[key] = _merge_list(before or [], value, merge_keys[key])
        elif not key.startswith("$"):
            merged[key] = value
    return merged


def _merge_list(current: list[Json], patch: list[Json], key: str) -> list[Json]:
    existing = {element.get(key): element for element in current}
    merged = {}
    for element in patch:
        name = element[key]
        merged[name] = merge(existing.get(name, {}), element, _MERGE_KEYS)
    # A real server puts added elements first.
    added = [element for name, element in merged.items() if name not in existing]
    return added + [merged.get(name, element) for name, element in existing.items()]
