from collections.abc import Callable

from rollout.execution.record.compare_and_swap import rewrite
from rollout.gather.cluster.documents import read_stored_slots, slots_document
from rollout.model.fleetlock import Slots
from rollout.ports import ClusterApi


def change_slots(api: ClusterApi, namespace: str, change: Callable[[Slots], Slots]) -> Slots:
    return rewrite(api, slots_document(namespace), read_stored_slots, change)
