"""Taking and freeing slots of FleetLock: compare and swap on one ConfigMap, so that there are never too many."""

from collections.abc import Callable

from rollout.errors import ApiConflictError, ApiError
from rollout.gather.cluster.slots import read_slots, slots_path, written_slots
from rollout.model import marks
from rollout.model.fleetlock import Slots
from rollout.ports import ClusterApi

_ATTEMPTS = 20


def change_slots(api: ClusterApi, namespace: str, change: Callable[[Slots], Slots]) -> Slots:
    """Read, change, write; again where another wrote in between. The slots as they stand then; `ApiError` else.

    `change` decides on what it is given, and may be called several times; what it raises ends the attempt.
    """
    path = slots_path(namespace)
    for _attempt in range(_ATTEMPTS):
        standing = read_slots(api, namespace)
        changed = change(standing.slots)
        if changed == standing.slots:
            return changed
        body = written_slots(changed, standing, namespace)
        try:
            if standing.body is None:
                api.create(path.rpartition("/")[0], body)
            else:
                api.replace(path, body)
        except ApiConflictError:
            continue
        return changed
    raise ApiError(f"the ConfigMap {namespace}/{marks.SLOTS_NAME} changes too often to be written")
