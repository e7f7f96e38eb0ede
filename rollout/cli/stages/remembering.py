"""What commands do with the memory of earlier rollouts, besides planning by it."""

from collections.abc import Callable

from rollout.cli import wiring
from rollout.cli.settings.schema import Settings
from rollout.cli.stages.gather import Connections, read_memory, with_patience
from rollout.errors import ApiError
from rollout.model.memory import NO_MEMORY, Memory


def change_memory(
    settings: Settings, change: Callable[[Memory], Memory], *, anew: bool = False
) -> tuple[Memory, Memory]:
    """The memory before and after the change; `ApiError` where it is not understood, but to be begun `anew`."""
    from rollout.execution.record.memory import change_memory
    from rollout.gather.cluster.memory import read_standing

    api, namespace = wiring.cluster_api(settings.cluster), settings.lock.namespace
    before = with_patience(lambda: read_standing(api, namespace)).memory
    if before.problem and not anew:
        raise ApiError(before.problem, hint="Reset it: rollout release --all")
    return before, with_patience(lambda: change_memory(api, namespace, change, anew=anew))


def remembered(connections: Connections, namespace: str) -> Memory:
    """The memory, beside what a command is for: nothing where this user may not see it."""
    try:
        return read_memory(connections, namespace)
    except ApiError:
        return NO_MEMORY
