"""Who cordoned a Node and who wrote its annotations and labels, as the field managers of a real server say it.

Of a Lease it says when it was last written, by the server's own clock. Of other fields, and kinds, the lab keeps none.
"""

from collections.abc import Iterable

from rollout.lab.api.store import Json

_KINDS = ("annotations", "labels")
_CORDON = ("spec", "unschedulable")
_Path = tuple[str, str]


def field_managers(cordoned_by: str, marked_by: str, annotations: Iterable[str]) -> list[Json]:
    """The entries of a Node that these two have written; an empty name leaves out what it would have written."""
    owners = {("annotations", name): marked_by for name in annotations if marked_by}
    return _entries({**owners, **({_CORDON: cordoned_by} if cordoned_by else {})})


def with_managers(current: Json, changed: Json, manager: str) -> Json:
    """The Node as `manager` has changed it, with who has written what of it by now."""
    before, after = _values(current), _values(changed)
    owners = {path: owner for path, owner in _owners(current).items() if path in after}
    owners |= {path: manager or "unknown" for path, value in after.items() if before.get(path) != value}
    metadata = {name: value for name, value in changed["metadata"].items() if name != "managedFields"}
    entries = _entries(owners)
    return {**changed, "metadata": {**metadata, **({"managedFields": entries} if entries else {})}}


def with_time(current: Json, lease: Json, manager: str, now: str) -> Json:
    """The Lease as `manager` has written it at a time of the server, RFC 3339, with who wrote its spec or beside it."""
    before = current.get("metadata", {})
    earlier = before.get("managedFields") or []
    if lease.get("spec") != current.get("spec"):
        entries = [_of_lease(manager, now, {"f:spec": {f"f:{field}": {} for field in lease.get("spec") or {}}})]
    elif any(lease["metadata"].get(kind) != before.get(kind) for kind in _KINDS):
        others = [entry for entry in earlier if entry["manager"] != manager or "f:spec" in entry["fieldsV1"]]
        entries = [*others, _of_lease(manager, now, {"f:metadata": {}})]
    else:
        entries = earlier
    return {**lease, "metadata": {**lease["metadata"], "managedFields": entries}}


def _of_lease(manager: str, now: str, fields: Json) -> Json:
    entry = {"manager": manager or "unknown", "operation": "Update", "apiVersion": "coordination.k8s.io/v1"}
    return {**entry, "time": now, "fieldsType": "FieldsV1", "fieldsV1": fields}


def _values(node: Json) -> dict[_Path, object]:
    """What is looked after, by its place; a node that is not cordoned has no cordon."""
    values: dict[_Path, object] = {
        (kind, name): value for kind in _KINDS for name, value in (node["metadata"].get(kind) or {}).items()
    }
    return {**values, **({_CORDON: True} if (node.get("spec") or {}).get("unschedulable") else {})}


def _owners(node: Json) -> dict[_Path, str]:
    owners: dict[_Path, str] = {}
    for entry in node["metadata"].get("managedFields") or ():
        fields = entry["fieldsV1"]
        if "f:unschedulable" in fields.get("f:spec", {}):
            owners[_CORDON] = entry["manager"]
        for kind in _KINDS:
            names = fields.get("f:metadata", {}).get(f"f:{kind}", {})
            owners |= {(kind, name.removeprefix("f:")): entry["manager"] for name in names}
    return owners


def _entries(owners: dict[_Path, str]) -> list[Json]:
    return [_entry(manager, owners) for manager in sorted(set(owners.values()))]


def _entry(manager: str, owners: dict[_Path, str]) -> Json:
    own = [path for path, owner in owners.items() if owner == manager]
    named: Json = {f"f:{kind}": {f"f:{name}": {} for place, name in own if place == kind} for kind in _KINDS}
    metadata = {kind: names for kind, names in named.items() if names}
    fields: Json = {
        **({"f:metadata": metadata} if metadata else {}),
        **({"f:spec": {"f:unschedulable": {}}} if _CORDON in own else {}),
    }
    entry = {"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    return {**entry, "fieldsV1": fields}
