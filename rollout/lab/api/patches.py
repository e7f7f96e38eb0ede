"""The two ways in which kubectl and rollout patch an object: merge, and strategic merge.

Of a strategic merge only what clients of this cluster patch is known: lists of the fields below are merged by their
key, any other list is replaced whole, as a real server does with lists that have no merge key (a node's taints).
"""

from typing import Any, Final

from rollout.lab.api.statuses import bad_request, unsupported_media_type
from rollout.lab.api.store import Json

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
_MERGE_KEYS: Final = {
    **dict.fromkeys(("conditions", "addresses"), "type"),
    **dict.fromkeys(("containers", "initContainers", "env", "volumes"), "name"),
    "ownerReferences": "uid",
    "volumeMounts": "mountPath",
}
_DIRECTIVE: Final = "$patch"


def apply_patch(media_type: str, current: Json, patch: Any) -> Json:
    """Return the object after the patch; `current` stays as it is. 415 for an unknown media type, 400."""
    if media_type not in {MERGE, STRATEGIC}:
        raise unsupported_media_type()
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}")
    return merge(current, patch, strategic=media_type == STRATEGIC)


def merge(current: Json, patch: Json, *, strategic: bool = False) -> Json:
    """RFC 7386, or with the lists of a strategic merge."""
    if strategic and patch.get(_DIRECTIVE) == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    merged = dict(current)
    for key, value in patch.items():
        before = merged.get(key)
        if strategic and key.startswith("$"):
            # The order of elements is a wish about presentation.
            continue
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = merge(before if isinstance(before, dict) else {}, value, strategic=strategic)
        elif strategic and isinstance(value, list) and key in _MERGE_KEYS:
            merged[key] = _merged_list(before or [], value, _MERGE_KEYS[key])
        else:
            merged[key] = value
    return merged


def _merged_list(current: list[Json], patch: list[Json], key: str) -> list[Json]:
    elements, fresh = {element.get(key): element for element in current}, dict[Any, Json]()
    for element in patch:
        identity = element.get(key)
        if identity is None:
            raise bad_request(f"map: {element} does not contain declared merge key: {key}")
        if element.get(_DIRECTIVE) == "delete":
            elements.pop(identity, None)
        elif identity in elements:
            elements[identity] = merge(elements[identity], element, strategic=True)
        else:
            fresh[identity] = merge({}, element, strategic=True)
    # A real server puts the elements that a patch adds before those that were there.
    return [*fresh.values(), *elements.values()]
