"""The lock before anything is begun: whose it is, and whether they live."""

from rollout.cli import wiring
from rollout.cli.lock_owner import has_ended_here
from rollout.cli.stages.gather import with_patience
from rollout.cli.terminal import say
from rollout.errors import ApiError, LockedError
from rollout.execution.lease import Glance, Holder, LeaseState, LeaseWatch, await_sign, glance, locked, read_lease
from rollout.ports import ClusterApi

_FORBIDDEN = 403


def read_lock(api: ClusterApi, namespace: str) -> LeaseState:
    """The lock as it stands."""
    return with_patience(lambda: read_lease(api, namespace))


def glance_at_lock(api: ClusterApi, namespace: str) -> Glance:
    """Who holds the lock and when they last renewed it, at one look: to be shown, not to decide by."""
    lease = read_lock(api, namespace)
    return glance(lease, api.server_time(), has_ended=has_ended_here(lease))


def is_holder_alive(api: ClusterApi, namespace: str) -> bool:
    """Whether a process holds the lock, and renews it while we look on."""
    return await_sign(lock_watch(), lambda: read_lock(api, namespace), say) is Holder.ALIVE


def lock_watch() -> LeaseWatch:
    """A watch that knows the processes of this machine."""
    return LeaseWatch(wiring.system_clock(), has_ended_here)


def refuse_beside_living(api: ClusterApi, namespace: str, force_unlock: str = "") -> LeaseWatch:
    """`LockedError` while a living process holds the lock; what was seen of it, for whoever takes it then.

    An operator who names the run to pass over is held against the lock when it is taken.
    """
    watch = lock_watch()
    if force_unlock:
        return watch
    try:
        state = await_sign(watch, lambda: read_lock(api, namespace), say, api.server_time)
    except ApiError as error:
        if error.status != _FORBIDDEN:
            raise
        # that this user may not see the lock is told with all the other rights that are missing
        return watch
    if state is Holder.ALIVE:
        raise beside_living(api, namespace)
    return watch


def beside_living(api: ClusterApi, namespace: str) -> LockedError:
    """The refusal beside the process that holds the lock, which was seen to live."""
    seen = glance_at_lock(api, namespace)
    return locked(seen.lease, namespace, age=seen.age if seen.one_clock else None)
