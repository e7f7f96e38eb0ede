"""When a Lease, or the annotations of a Node, were last written, by the server's own clock.

Told as the field managers of a real server tell it; of other kinds and fields the lab keeps none.
"""

from rollout.lab.api.store import Json

_KINDS = ("annotations", "labels")
_LEASES = "coordination.k8s.io/v1"


def with_lease_time(current: Json, lease: Json, manager: str, now: str) -> Json:
    """The Lease as `manager` has written it at a time of the server, RFC 3339, with who wrote its spec or beside it."""
    before = current.get("metadata", {})
    earlier = before.get("managedFields") or []
    if lease.get("spec") != current.get("spec"):
        entries = [_entry(_LEASES, manager, now, {"f:spec": {f"f:{field}": {} for field in lease.get("spec") or {}}})]
    elif any(lease["metadata"].get(kind) != before.get(kind) for kind in _KINDS):
        others = [entry for entry in earlier if entry["manager"] != manager or "f:spec" in entry["fieldsV1"]]
        entries = [*others, _entry(_LEASES, manager, now, {"f:metadata": {}})]
    else:
        entries = earlier
    return _with(lease, entries)


def with_node_time(current: Json, node: Json, manager: str, now: str) -> Json:
    """The Node as `manager` has written it, with who wrote which of its annotations."""
    before, after = (version["metadata"].get("annotations") or {} for version in (current, node))
    changed = [name for name in after if after[name] != before.get(name)]
    earlier = current["metadata"].get("managedFields") or []
    if not changed:
        return _with(node, earlier)
    written: Json = {f"f:{name}": {} for name in changed}
    own = next((entry for entry in earlier if entry["manager"] == manager), None)
    if own is not None:
        owned = own["fieldsV1"]["f:metadata"]["f:annotations"]
        written |= {name: {} for name in owned if name.removeprefix("f:") in after}
    entry = _entry("v1", manager, now, {"f:metadata": {"f:annotations": written}})
    return _with(node, [*(other for other in earlier if other is not own), entry])


def _with(obj: Json, entries: list[Json]) -> Json:
    return {**obj, "metadata": {**obj["metadata"], "managedFields": entries}} if entries else obj


def _entry(version: str, manager: str, now: str, fields: Json) -> Json:
    entry = {"manager": manager or "unknown", "operation": "Update", "apiVersion": version}
    return {**entry, "time": now, "fieldsType": "FieldsV1", "fieldsV1": fields}
