"""Roles made of the rights that the program asks for: nothing that it uses is missing, nothing else is in them.

What is written beside Nodes and pods is granted in one namespace: the Lease and the ConfigMaps where the lock is, by
name (`create` cannot be limited to one). Events about Nodes stand in `default`, for the API server refuses the Event of
an object without a namespace in any other.
"""

from collections.abc import Iterable, Iterator

from rollout.gather.cluster.rights import Right, apply_rights, fleetlock_rights, operate_rights
from rollout.manifests.installation import Access, Json, User

_RIGHTS = {User.PEOPLE: apply_rights, User.OPERATE: operate_rights, User.FLEETLOCK: fleetlock_rights}


def roles(access: Access) -> tuple[Json, ...]:
    """A ClusterRole, and a Role for each namespace that is written in; the lock's comes first."""
    places: dict[str, list[Right]] = {"": []}
    for right in _RIGHTS[access.user](access.lease_namespace, disable_eviction=access.disable_eviction):
        # a namespace itself is in none, though access reviews name it as its own
        places.setdefault("" if right.resource == "namespaces" else right.namespace, []).append(right)
    return tuple(
        {
            "kind": "Role" if place else "ClusterRole",
            "metadata": {"name": access.name, **({"namespace": place} if place else {})},
            "rules": list(_rules(rights)),
        }
        for place, rights in places.items()
    )


def _rules(rights: Iterable[Right]) -> Iterator[Json]:
    """The verbs of one resource together, then the resources with the same verbs."""
    verbs: dict[tuple[str, str, str], dict[str, None]] = {}
    for right in rights:
        resource = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
        verbs.setdefault((right.group, right.name, resource), {})[right.verb] = None
    resources: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (group, name, resource), allowed in verbs.items():
        resources.setdefault((group, name, tuple(sorted(allowed))), []).append(resource)
    for (group, name, allowed_verbs), alike in resources.items():
        names = {"resourceNames": [name]} if name else {}
        yield {"apiGroups": [group], "resources": alike, **names, "verbs": list(allowed_verbs)}
