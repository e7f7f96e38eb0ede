"""When a Lease was last written, by the server's own clock, as the field managers of a real server say it.

Of other kinds the lab keeps none.
"""

from rollout.lab.api.store import Json

_KINDS = ("annotations", "labels")


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
