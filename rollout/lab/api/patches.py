"""The three ways to patch an object: merge, JSON and strategic merge.

A strategic merge needs to know which lists are merged by which key; only the lists that clients of this
cluster patch are in the table. A list that is not in it is replaced whole, as a real server does with
lists that have no merge key (a node's taints among them).
"""

from collections.abc import Callable
from typing import Any

import jsonpatch

from rollout.lab.api.resources import DAEMONSETS, DEPLOYMENTS, JOBS, PODS, REPLICASETS, STATEFULSETS, Resource
from rollout.lab.api.statuses import StatusError, bad_request, unprocessable_patch, unsupported_media_type
from rollout.lab.api.store import Json

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

# Paths of lists below an object, without indices -> the field that identifies an element; "" for lists
# of plain values that are merged as sets.
_EVERYWHERE = {
    "metadata.ownerReferences": "uid",
    "metadata.finalizers": "",
    "status.conditions": "type",
    "status.addresses": "type",
    "spec.podCIDRs": "",
    "secrets": "name",
    "imagePullSecrets": "name",
    "spec.ports": "port",
}
_CONTAINER = {
    "ports": "containerPort",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
}
_POD_SPEC = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
    **{
        f"{containers}.{path}": key
        for containers in ("containers", "initContainers", "ephemeralContainers")
        for path, key in _CONTAINER.items()
    },
}
_POD = {**{f"spec.{path}": key for path, key in _POD_SPEC.items()}, "status.podIPs": "ip", "status.hostIPs": "ip"}
_TEMPLATE = {
    "spec.template.metadata.finalizers": "",
    **{f"spec.template.spec.{path}": key for path, key in _POD_SPEC.items()},
}
_MERGE_KEYS: dict[Resource, dict[str, str]] = {
    PODS: {**_EVERYWHERE, **_POD},
    **{
        resource: {**_EVERYWHERE, **_TEMPLATE}
        for resource in (DAEMONSETS, DEPLOYMENTS, REPLICASETS, STATEFULSETS, JOBS)
    },
}

_DIRECTIVE = "$patch"
_DELETE_FROM = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_RETAIN = "$retainKeys"


def apply_patch(resource: Resource, media_type: str, current: Json, patch: Any) -> Json:
    """The object after the patch; `current` stays as it is. 415 for an unknown media type, 400, 422."""
    appliers: dict[str, Callable[[], Json]] = {
        MERGE: lambda: merge(current, _mapping(patch)),
        JSON_PATCH: lambda: _json_patch(current, patch),
        STRATEGIC: lambda: strategic(resource, current, _mapping(patch)),
    }
    if media_type not in appliers:
        raise unsupported_media_type()
    return appliers[media_type]()


def _mapping(patch: Any) -> Json:
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}")
    return patch


def merge(current: Json, patch: Json) -> Json:
    """RFC 7386."""
    merged = dict(current)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            before = merged.get(key)
            merged[key] = merge(before if isinstance(before, dict) else {}, value)
        else:
            merged[key] = value
    return merged


def _json_patch(current: Json, patch: Any) -> Json:
    """RFC 6902."""
    if not isinstance(patch, list):
        raise bad_request("error decoding patch: json: cannot unmarshal into Go value of type jsonpatch.Patch")
    try:
        patched: Json = jsonpatch.apply_patch(current, patch)
    except (jsonpatch.JsonPatchConflict, jsonpatch.JsonPatchTestFailed, jsonpatch.JsonPointerException) as error:
        raise unprocessable_patch() from error
    except jsonpatch.JsonPatchException as error:
        raise bad_request(f"error decoding patch: {error}") from error
    return patched


def strategic(resource: Resource, current: Json, patch: Json) -> Json:
    """A strategic merge: lists with a merge key are merged element by element."""
    return _Strategic(_MERGE_KEYS.get(resource, _EVERYWHERE)).merged(current, patch, "")


class _Strategic:
    """One strategic merge; holds the table of merge keys so that the recursion need not carry it."""

    def __init__(self, merge_keys: dict[str, str]) -> None:
        self._merge_keys = merge_keys

    def merged(self, current: Json, patch: Json, path: str) -> Json:
        directive = patch.get(_DIRECTIVE)
        if directive == "replace":
            return {key: value for key, value in patch.items() if key != _DIRECTIVE}
        if directive == "delete":
            return {}
        if directive not in {None, "merge"}:
            raise _bad_directive(directive)
        merged = _retained(current, patch)
        for key, value in patch.items():
            self._merge_field(merged, key, value, f"{path}.{key}" if path else key)
        return merged

    def _merge_field(self, merged: Json, key: str, value: Any, path: str) -> None:
        if key.startswith(_DELETE_FROM):
            name = key.removeprefix(_DELETE_FROM)
            merged[name] = [element for element in merged.get(name) or () if element not in value]
        elif key.startswith("$"):
            # The order of elements is a wish about presentation; the other directives were read before.
            return
        elif value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            before = merged.get(key)
            merged[key] = self.merged(before if isinstance(before, dict) else {}, value, path)
        elif isinstance(value, list) and path in self._merge_keys:
            merged[key] = self._merged_list(merged.get(key) or [], value, path)
        else:
            merged[key] = value

    def _merged_list(self, current: list[Any], patch: list[Any], path: str) -> list[Any]:
        key = self._merge_keys[path]
        if not key:
            return [*current, *(element for element in patch if element not in current)]
        if any(element.get(_DIRECTIVE) == "replace" for element in patch):
            return [element for element in patch if _DIRECTIVE not in element]
        elements = {element.get(key): element for element in current}
        fresh: dict[Any, Json] = {}
        for element in patch:
            self._merge_element(elements, fresh, element, key, path)
        # A real server puts the elements that a patch adds before those that were there.
        return [*fresh.values(), *elements.values()]

    def _merge_element(
        self, elements: dict[Any, Json], fresh: dict[Any, Json], element: Json, key: str, path: str
    ) -> None:
        if key not in element:
            raise bad_request(f"map: {element} does not contain declared merge key: {key}")
        identity = element[key]
        if element.get(_DIRECTIVE) == "delete":
            elements.pop(identity, None)
        elif identity in elements:
            elements[identity] = self.merged(elements[identity], element, path)
        else:
            fresh[identity] = self.merged({}, element, path)


def _retained(current: Json, patch: Json) -> Json:
    kept = patch.get(_RETAIN)
    return dict(current) if kept is None else {key: value for key, value in current.items() if key in kept}


def _bad_directive(directive: Any) -> StatusError:
    return bad_request(f"unknown patch type found: {directive}")
