"""Create, update, patch and delete: what a write over the wire does to the store.

Everything here is synchronous, so a write is one step of the event loop and nothing can come
between the reading of an object and its replacement. A dry run takes the same way and stops before
the store.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from rollout.lab.api.lifecycle import WITH_GENERATION, deleted_form, settle, with_defaults
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

# Fields of the metadata that no client decides.
_SERVER_OWNED = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
)
# An update of these must name the version it is based on.
_VERSION_REQUIRED = frozenset({LEASES, BUDGETS})
# An update of one of these that is not there makes it.
_MADE_BY_UPDATE = frozenset({LEASES, EVENTS})


@dataclass(frozen=True, slots=True)
class DeletionRequest:
    """The DeleteOptions of a request, from its body or its query; empty strings and None: not given."""

    grace_seconds: int | None = None
    uid: str = ""
    dry_run: bool = False


def deletion_request(query: Mapping[str, str], body: Json | None) -> DeletionRequest:
    """Read how a deletion is to be done; the body wins over the query."""
    options = body or {}
    grace = options.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    try:
        return DeletionRequest(
            grace_seconds=None if grace is None else int(grace),
            uid=(options.get("preconditions") or {}).get("uid") or "",
            dry_run="All" in (query.get("dryRun"), *(options.get("dryRun") or ())),
        )
    except ValueError as error:
        raise bad_request(f"invalid DeleteOptions: {error}") from error


class Writer:
    """The writing half of the API."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def current(self, resource: Resource, name: str, namespace: str) -> Json:
        """Return the stored object; 404."""
        obj = self._store.get(resource, name, namespace if resource.namespaced else "")
        if obj is None:
            raise not_found(resource, name)
        return obj

    def check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        """Refuse new content in a namespace that is not there (404) or is going away (403)."""
        if self.current(NAMESPACES, namespace, "")["metadata"].get("deletionTimestamp"):
            raise namespace_terminating(resource, name, namespace)

    def create(self, call: Call, body: Json) -> Json:
        """Store a new object."""
        resource = call.target.resource
        namespace = call.target.namespace
        metadata = {**(body.get("metadata") or {})}
        if metadata.pop("resourceVersion", ""):
            raise server_error("resourceVersion should not be set on objects to be created")
        for field in _SERVER_OWNED:
            metadata.pop(field, None)
        if resource.namespaced and metadata.setdefault("namespace", namespace) != namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the"
                " request"
            )
        obj = with_defaults(resource, {**body, "metadata": metadata})
        check(resource, obj)
        name = metadata.get("name", "")
        now = timestamp(self._store.now())
        if resource.namespaced:
            self.check_namespace(resource, namespace, name)
        if name and self._store.get(resource, name, metadata.get("namespace", "")) is not None:
            raise already_exists(resource, name)
        obj = with_writers(call, {}, obj, now)
        if not call.dry_run:
            return self._store.create(resource, obj)
        identity = {
            "name": name or metadata["generateName"],
            "uid": str(uuid4()),
            "creationTimestamp": now,
        }
        return with_metadata(obj, **identity)

    def update(self, call: Call, body: Json) -> Json:
        """Replace an object, or make it where its kind allows that (PUT)."""
        target, resource = call.target, call.target.resource
        metadata = body.get("metadata") or {}
        named = (metadata.get("name"), metadata.get("namespace", target.namespace))
        if named != (target.name, target.namespace):
            raise bad_request(
                f"the object ({named[1]}/{named[0]}) does not match the URL or the namespace on it"
            )
        if self.is_made_by_update(target):
            # whatever version it names is not looked at, only whom it means
            if metadata.get("uid"):
                raise wrong_uid_on_update(resource, target.name, metadata["uid"], "")
            return self.create(call, {**body, "metadata": {**metadata, "resourceVersion": ""}})
        current = self.current(resource, target.name, target.namespace)
        if resource in _VERSION_REQUIRED and metadata.get("resourceVersion") in {None, "", "0"}:
            message = "Invalid value: 0: must be specified for an update"
            raise invalid(
                resource,
                target.name,
                [cause("FieldValueInvalid", message, "metadata.resourceVersion")],
            )
        return self.replace(call, current, body)

    def is_made_by_update(self, target: Target) -> bool:
        """Whether there is no such object, and an update would make it."""
        resource = target.resource
        return resource in _MADE_BY_UPDATE and not self._store.get(
            resource, target.name, target.namespace
        )

    def patch(self, call: Call, patch: Any) -> Json:
        """Patch an object."""
        current = self.current(call.target.resource, call.target.name, call.target.namespace)
        patched = apply_patch(call.content_type, current, patch)
        if (patched.get("metadata") or {}).get("name") != call.target.name:
            raise bad_request("the name of the object does not match the name on the URL")
        return self.replace(call, current, patched)

    def replace(self, call: Call, current: Json, wanted: Json) -> Json:
        """Bring an object to its wanted form, as far as the write may; 409 if it was based on another version."""
        resource = call.target.resource
        now = timestamp(self._store.now())
        _check_identity(resource, current, wanted.get("metadata") or {})
        obj = with_defaults(resource, _within(call.target, current, wanted), creating=False)
        check(resource, obj, current)
        obj = with_writers(call, current, obj, now)
        if call.dry_run:
            return with_metadata(obj, resourceVersion=current["metadata"]["resourceVersion"])
        return settle(self._store, resource, obj) or obj

    def delete_object(self, resource: Resource, current: Json, request: DeletionRequest) -> Json:
        """Delete under the request's precondition; the object as the deletion leaves or last saw it."""
        check_uid(resource, current, request.uid)
        after = deleted_form(
            resource, current, self._store.now(), grace_seconds=request.grace_seconds
        )
        return after if request.dry_run else settle(self._store, resource, after) or after


def _check_identity(resource: Resource, current: Json, metadata: Json) -> None:
    stored = current["metadata"]
    uid = metadata.get("uid") or stored["uid"]
    if uid != stored["uid"]:
        raise wrong_uid_on_update(resource, stored["name"], uid, stored["uid"])
    # "0" is no version: whatever stands there is meant.
    if metadata.get("resourceVersion") not in {None, "", "0", stored["resourceVersion"]}:
        raise stale_version(resource, stored["name"])


def check_uid(resource: Resource, current: Json, uid: str) -> None:
    """Refuse the deletion of another object than the one that was meant, if one was."""
    stored = current["metadata"]
    if uid not in {"", stored["uid"]}:
        raise wrong_precondition(resource, stored["name"], uid, stored["uid"])


def _within(target: Target, current: Json, wanted: Json) -> Json:
    """Return the wanted object with everything that this write may not change as it was."""
    before = current["metadata"]
    owned = (*_SERVER_OWNED, "namespace")
    sent = {key: value for key, value in (wanted.get("metadata") or {}).items() if key not in owned}
    metadata = {
        **sent,
        "name": before["name"],
        **{field: before[field] for field in owned if field in before},
    }
    kept = _keep_status_apart(target, current, wanted)
    if target.resource in WITH_GENERATION and kept.get("spec") != current.get("spec"):
        metadata["generation"] = before.get("generation", 0) + 1
    return {**kept, "metadata": metadata}


def _keep_status_apart(target: Target, current: Json, wanted: Json) -> Json:
    """Return the object with its new status alone, or with all but that."""
    if "status" not in target.resource.subresources:
        return wanted
    rest, of_status = (current, wanted) if target.subresource else (wanted, current)
    return {**rest, "status": status_of(of_status)}


# Of these objects it is kept who has written which fields last, in these parts. A client can tell
# that all stand on one level of `fieldsV1`.
_WRITTEN: Final = {LEASES: ("spec", "annotations", "labels"), NODES: ("annotations",)}


def with_writers(call: Call, current: Json, obj: Json, now: str) -> Json:
    """Return a Lease or a Node with who wrote which of its fields, and when by the server's time, RFC 3339."""
    resource = call.target.resource
    before = _fields_of(resource, current)
    after = _fields_of(resource, obj)
    changed: Json = {field: {} for field, value in after.items() if before.get(field) != value}
    entries: list[Json] = (current.get("metadata") or {}).get("managedFields") or []
    times = {entry["manager"]: entry["time"] for entry in entries}
    written: dict[str, Json] = {
        entry["manager"]: {
            field: {} for field in entry["fieldsV1"] if field in after and field not in changed
        }
        for entry in entries
    }
    if changed:
        times[call.manager], written[call.manager] = (
            now,
            {**written.get(call.manager, {}), **changed},
        )
    known = {"operation": "Update", "apiVersion": resource.api_version, "fieldsType": "FieldsV1"}
    entries = [
        {**known, "manager": name, "time": times[name], "fieldsV1": fields}
        for name, fields in written.items()
        if fields
    ]
    return with_metadata(obj, managedFields=entries) if entries else obj


def _fields_of(resource: Resource, obj: Json) -> Json:
    parts = {"spec": obj.get("spec"), **(obj.get("metadata") or {})}
    counted = (parts.get(part) or {} for part in _WRITTEN.get(resource, ()))
    return {f"f:{name}": value for part in counted for name, value in part.items()}


MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
_MERGE_KEYS: Final = {
    "conditions": "type",
    **dict.fromkeys(("containers", "initContainers", "env", "volumes"), "name"),
    "volumeMounts": "mountPath",
}


# Of a strategic merge only what clients of this cluster patch is known: lists of the fields above
# are merged by their key, any other list is replaced whole, as a real server does with lists that
# have no merge key (a node's taints). Directives (`$patch`) are not followed.
def apply_patch(media_type: str, current: Json, patch: Any) -> Json:
    """Return the object after the patch; `current` stays as it is. 415 for an unknown media type, 400."""
    if media_type not in {MERGE, STRATEGIC}:
        raise unsupported_media_type()
    if not isinstance(patch, dict):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal into Go value of type"
            " map[string]interface {}"
        )
    return merge(current, patch, _MERGE_KEYS if media_type == STRATEGIC else {})


def merge(current: Json, patch: Json, merge_keys: Mapping[str, str]) -> Json:
    """RFC 7386, but for lists with a merge key, as a strategic merge has them."""
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
    known = {element.get(key): element for element in current}
    changed = {
        element[key]: merge(known.get(element[key], {}), element, _MERGE_KEYS) for element in patch
    }
    # A real server puts the elements that a patch adds before those that were there.
    added = [element for name, element in changed.items() if name not in known]
    return [*added, *(changed.get(name, element) for name, element in known.items())]
