"""The lock before anything is begun: whose it is, and whether they live."""

import socket

from rollout.adapters.journal import is_being_written, journal_of, read_journal
from rollout.cli import wiring
from rollout.cli.stages.gather import with_patience
from rollout.cli.terminal import say
from rollout.errors import ApiError
from rollout.execution.lease import Glance, Holder, LeaseState, LeaseWatch, await_sign, glance, locked, read_lease
from rollout.model.text import is_run_id
from rollout.ports import ClusterApi

_FORBIDDEN = 403


def has_ended_here(lease: LeaseState) -> bool:
    """Whether the process that holds the lock was on this machine, and is surely gone.

    Users, machines and process ids may be alike in two containers: the word in the journal is not. A process has its
    journal open for as long as it lives.
    """
    machine = lease.holder.rpartition("/")[0].rpartition("@")[2]
    if not (lease.process and is_run_id(lease.run)) or machine != socket.gethostname():
        return False
    path = journal_of(lease.run)
    try:
        begun = [record for record in read_journal(path) if record.get("type") == "run"]
    except OSError:
        return False
    return bool(begun) and begun[-1].get("process") == lease.process and is_being_written(path) is False


def read_lock(api: ClusterApi, namespace: str) -> LeaseState:
    """Return the lock as it stands."""
    return with_patience(lambda: read_lease(api, namespace))


def glance_at_lock(api: ClusterApi, namespace: str) -> Glance:
    """Who holds the lock and when they last renewed it, at one look: to be shown, not to decide by."""
    lease = read_lock(api, namespace)
    return glance(lease, api.server_time(), has_ended=has_ended_here(lease))


def is_holder_alive(api: ClusterApi, namespace: str) -> bool:
    """Whether a process holds the lock, and renews it while we look on."""
    return await_sign(lock_watch(), lambda: read_lock(api, namespace), say) is Holder.ALIVE


def lock_watch() -> LeaseWatch:
    """Return a watch that knows the processes of this machine."""
    return LeaseWatch(wiring.system_clock(), has_ended_here)


def refuse_beside_living(
    api: ClusterApi, namespace: str, force_unlock: str = "", watch: LeaseWatch | None = None
) -> LeaseWatch:
    """`LockedError` while a living process holds the lock; what was seen of it, for whoever takes it then.

    An operator who names the run to pass over is held against the lock when it is taken. `watch`: of earlier looks.
    """
    watch = watch or lock_watch()
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
        seen = glance_at_lock(api, namespace)
        raise locked(seen.lease, namespace, age=seen.age if seen.one_clock else None)
    return watch
