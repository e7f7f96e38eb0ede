"""Taking and freeing slots of FleetLock, so that there are never too many."""

from collections.abc import Callable
from functools import partial

from rollout.execution.record.rewriting import rewrite
from rollout.gather.cluster.slots import read_slots, slots_of, written_slots
from rollout.model.fleetlock import Slots
from rollout.ports import ClusterApi


def change_slots(api: ClusterApi, namespace: str, change: Callable[[Slots], Slots]) -> Slots:
    """Change the slots as `rewrite` does; as they stand then, `ApiError` else."""
    return rewrite(
        api, slots_of(namespace), lambda: read_slots(api, namespace), change, partial(written_slots, namespace)
    )
