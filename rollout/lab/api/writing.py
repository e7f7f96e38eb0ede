"""Create, update, patch and delete: what a write over the wire does to the store.

Everything here is synchronous, so a write is one step of the event loop and nothing can come between the
reading of an object and its replacement. A dry run takes the same way and stops before the store.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import uuid4

from rollout.lab.api.defaulting import has_generation, with_defaults
from rollout.lab.api.deletion import deleted_form, is_due, settle
from rollout.lab.api.managers import with_lease_time, with_node_time
from rollout.lab.api.patches import apply_patch
from rollout.lab.api.requests import Target
from rollout.lab.api.resources import BUDGETS, EVENTS, LEASES, NAMESPACES, NODES, PODS, Resource
from rollout.lab.api.statuses import (
    Cause,
    already_exists,
    bad_request,
    forbidden,
    invalid,
    invalid_options,
    namespace_terminating,
    not_found,
    stale_version,
    success,
    version_on_create,
    wrong_uid,
    wrong_uid_on_update,
    wrong_version,
)
from rollout.lab.api.store import AlreadyExistsError, Json, ObjectStore, timestamp
from rollout.lab.api.validation import check_kind, check_new, check_patched_shape, check_shape, check_update

# Fields of the metadata that no client decides.
_SERVER_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
# Resources whose deletion answers with the object that was, not with a Status.
_ANSWERED_BY_OBJECT = frozenset({PODS, NAMESPACES})
_IMMORTAL_NAMESPACES = frozenset({"default", "kube-public", "kube-system"})
# An update of these must name the version it is based on.
_VERSION_REQUIRED = frozenset({LEASES, BUDGETS})
# An update of one of these that is not there makes it.
_MADE_BY_UPDATE = frozenset({LEASES, EVENTS})


class Scope(StrEnum):
    """Which half of an object a write may change."""

    MAIN = "main"
    STATUS = "status"


@dataclass(frozen=True, slots=True)
class DeletionRequest:
    """The DeleteOptions of a request, from its body or its query; empty strings and None: not given."""

    grace_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False


def dry_run_asked(query: Mapping[str, str], options: Json | None = None) -> bool:
    """Whether `dryRun=All` stands in the query or in the options of the body; 422 for another value."""
    asked = [*([query["dryRun"]] if "dryRun" in query else []), *((options or {}).get("dryRun") or ())]
    if any(value not in {"All", ""} for value in asked):
        message = f'Unsupported value: ["{asked[0]}"]: supported values: "All"'
        raise invalid_options("DeleteOptions", Cause("FieldValueNotSupported", message, field="dryRun"))
    return "All" in asked


def deletion_request(query: Mapping[str, str], body: Json | None) -> DeletionRequest:
    """Read how a deletion is to be done; the body wins over the query."""
    options = body or {}
    preconditions = options.get("preconditions") or {}
    grace = options.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    try:
        return DeletionRequest(
            grace_seconds=None if grace is None else int(grace),
            uid=preconditions.get("uid") or "",
            resource_version=preconditions.get("resourceVersion") or "",
            dry_run=dry_run_asked(query, options),
        )
    except ValueError as error:
        raise bad_request(f"invalid DeleteOptions: {error}") from error


class Writer:
    """The writing half of the API."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def current(self, resource: Resource, name: str, namespace: str) -> Json:
        """The stored object; 404."""
        obj = self._store.get(resource, name, namespace if resource.namespaced else "")
        if obj is None:
            raise not_found(resource, name)
        return obj

    def check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        """Refuse new content in a namespace that is not there (404) or is going away (403)."""
        owner = self._store.get(NAMESPACES, namespace)
        if owner is None:
            raise not_found(NAMESPACES, namespace)
        if owner["metadata"].get("deletionTimestamp"):
            raise namespace_terminating(resource, name, namespace)

    def create(
        self, target: Target, resource: Resource, body: Json, *, dry_run: bool = False, manager: str = ""
    ) -> Json:
        """Store a new object."""
        check_kind(resource, body)
        check_shape(resource, body)
        metadata = {**(body.get("metadata") or {})}
        if metadata.pop("resourceVersion", ""):
            raise version_on_create()
        for field in (*_SERVER_OWNED, "managedFields"):
            metadata.pop(field, None)
        if resource.namespaced:
            self._place(metadata, target)
        obj = {**body, "metadata": metadata}
        check_new(resource, obj)
        if resource.namespaced:
            self.check_namespace(resource, metadata["namespace"], metadata.get("name", ""))
        if resource is LEASES:
            obj = with_lease_time({}, obj, manager, timestamp(self._store.now()))
        return self._stored(resource, with_defaults(resource, obj), dry_run=dry_run)

    def _place(self, metadata: Json, target: Target) -> None:
        if metadata.setdefault("namespace", target.namespace) != target.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")

    def _stored(self, resource: Resource, obj: Json, *, dry_run: bool) -> Json:
        metadata = obj["metadata"]
        name, namespace = metadata.get("name", ""), metadata.get("namespace", "")
        if name and self._store.get(resource, name, namespace) is not None:
            raise already_exists(resource, name)
        if dry_run:
            identity = {"uid": str(uuid4()), "creationTimestamp": timestamp(self._store.now())}
            return {**obj, "metadata": {"name": metadata.get("generateName", ""), **metadata, **identity}}
        try:
            return self._store.create(resource, obj)
        except AlreadyExistsError as error:
            # A generated name that was taken: as rare here as on a real server, and answered alike.
            raise already_exists(resource, str(error)) from error

    def update(
        self, target: Target, resource: Resource, body: Json, *, dry_run: bool = False, manager: str = ""
    ) -> Json:
        """Replace an object, or make it where its kind allows that (PUT)."""
        check_kind(resource, body)
        check_shape(resource, body)
        metadata = body.get("metadata") or {}
        if not metadata.get("name"):
            raise bad_request("the name of the object (based on URL) was undeterminable: name must be provided")
        if metadata["name"] != target.name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({target.name})"
            )
        if metadata.get("namespace", target.namespace) != target.namespace:
            raise bad_request(
                f"the namespace of the object ({metadata['namespace']}) does not match the namespace on the request "
                f"({target.namespace})"
            )
        if self.is_made_by_update(target, resource):
            return self._made(target, resource, body, dry_run=dry_run, manager=manager)
        current = self.current(resource, target.name, target.namespace)
        if resource in _VERSION_REQUIRED and metadata.get("resourceVersion") in {None, "", "0"}:
            cause = Cause(
                "FieldValueInvalid",
                "Invalid value: 0: must be specified for an update",
                field="metadata.resourceVersion",
            )
            raise invalid(resource, target.name, [cause])
        return self.replace(resource, current, body, scope=_scope(target), dry_run=dry_run, manager=manager)

    def _made(self, target: Target, resource: Resource, body: Json, *, dry_run: bool, manager: str) -> Json:
        """What an update makes: whatever version it names is not looked at, only whom it means."""
        metadata = {**(body.get("metadata") or {}), "name": target.name}
        if metadata.get("uid"):
            raise wrong_uid_on_update(resource, target.name, metadata["uid"], "")
        metadata.pop("resourceVersion", None)
        return self.create(target, resource, {**body, "metadata": metadata}, dry_run=dry_run, manager=manager)

    def is_made_by_update(self, target: Target, resource: Resource) -> bool:
        """Whether there is no such object, and an update would make it."""
        return resource in _MADE_BY_UPDATE and self._store.get(resource, target.name, target.namespace) is None

    def patch(
        self,
        target: Target,
        resource: Resource,
        media_type: str,
        patch: Any,
        *,
        dry_run: bool = False,
        manager: str = "",
    ) -> Json:
        """Patch an object."""
        current = self._store.get(resource, target.name, target.namespace if resource.namespaced else "")
        base = current if current is not None else {"metadata": {}}
        patched = apply_patch(media_type, base, patch)
        if current is None:
            raise not_found(resource, target.name)
        check_patched_shape(resource, patched)
        if (patched.get("metadata") or {}).get("name") != target.name:
            raise bad_request("the name of the object does not match the name on the URL")
        return self.replace(resource, current, patched, scope=_scope(target), dry_run=dry_run, manager=manager)

    def replace(
        self, resource: Resource, current: Json, wanted: Json, *, scope: Scope, dry_run: bool, manager: str = ""
    ) -> Json:
        """Bring an object to its wanted form, as far as the scope reaches; 409 if it was based on another version."""
        _check_identity(resource, current, wanted.get("metadata") or {})
        obj = with_defaults(resource, _within(resource, current, wanted, scope), creating=False)
        check_update(resource, obj, current)
        if resource is LEASES:
            obj = with_lease_time(current, obj, manager, timestamp(self._store.now()))
        elif resource is NODES:
            obj = with_node_time(current, obj, manager, timestamp(self._store.now()))
        if dry_run:
            version = current["metadata"]["resourceVersion"]
            return {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}
        stored = settle(self._store, resource, obj)
        return obj if stored is None else stored

    def delete(self, target: Target, resource: Resource, request: DeletionRequest) -> Json:
        """Delete an object: the terminating object, the object that was, or a Status, as a real server answers."""
        current = self.current(resource, target.name, target.namespace)
        if resource is NAMESPACES and target.name in _IMMORTAL_NAMESPACES:
            raise forbidden(resource, target.name, "this namespace may not be deleted")
        after = self.delete_object(resource, current, request)
        if resource in _ANSWERED_BY_OBJECT or not is_due(resource, after):
            return after
        details = {"name": target.name, "group": resource.group, "kind": resource.plural}
        details["uid"] = current["metadata"]["uid"]
        return success(200, {key: value for key, value in details.items() if value})

    def delete_object(self, resource: Resource, current: Json, request: DeletionRequest) -> Json:
        """Delete under the request's preconditions; the object as the deletion leaves or last saw it."""
        _check_preconditions(resource, current, request)
        after = deleted_form(
            resource,
            current,
            self._store.now(),
            grace_seconds=request.grace_seconds,
        )
        if request.dry_run:
            return after
        stored = settle(self._store, resource, after)
        return after if stored is None else stored


def _scope(target: Target) -> Scope:
    return Scope.STATUS if target.subresource == "status" else Scope.MAIN


def _check_identity(resource: Resource, current: Json, metadata: Json) -> None:
    stored = current["metadata"]
    uid = metadata.get("uid") or stored["uid"]
    if uid != stored["uid"]:
        raise wrong_uid_on_update(resource, stored["name"], uid, stored["uid"])
    # "0" is no version: whatever stands there is meant.
    if metadata.get("resourceVersion") not in {None, "", "0", stored["resourceVersion"]}:
        raise stale_version(resource, stored["name"])


def _check_preconditions(resource: Resource, current: Json, request: DeletionRequest) -> None:
    stored = current["metadata"]
    if request.uid and request.uid != stored["uid"]:
        raise wrong_uid(resource, stored["name"], request.uid, stored["uid"])
    if request.resource_version and request.resource_version != stored["resourceVersion"]:
        raise wrong_version(resource, stored["name"], request.resource_version, stored["resourceVersion"])


def _within(resource: Resource, current: Json, wanted: Json, scope: Scope) -> Json:
    """The wanted object with everything that this write may not change as it was."""
    before = current["metadata"]
    metadata = {**(wanted.get("metadata") or {}), "name": before["name"]}
    metadata.pop("managedFields", None)
    for field in (*_SERVER_OWNED, "namespace"):
        metadata.pop(field, None)
        if field in before:
            metadata[field] = before[field]
    kept = _kept(resource, current, wanted, scope)
    if scope is Scope.MAIN and has_generation(resource) and kept.get("spec") != current.get("spec"):
        metadata["generation"] = before.get("generation", 0) + 1
    return {**kept, "metadata": metadata}


def _kept(resource: Resource, current: Json, wanted: Json, scope: Scope) -> Json:
    if scope is Scope.STATUS:
        return {**current, "status": wanted.get("status") or {}}
    if resource.subresource("status") is None:
        return wanted
    merged = {key: value for key, value in wanted.items() if key != "status"}
    if resource is NAMESPACES:
        merged["spec"] = current.get("spec")
    return {**merged, "status": current["status"]} if "status" in current else merged
