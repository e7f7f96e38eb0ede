import socket

from rollout.adapters.journal import is_being_written, journal_of, read_journal
from rollout.cli import wiring
from rollout.cli.stages.cluster import with_retries
from rollout.cli.terminal import say
from rollout.errors import ApiError
from rollout.execution.lease import (
    HolderState,
    LeaseState,
    LeaseWatch,
    LockSnapshot,
    await_renewal,
    locked_error,
    read_lease,
)
from rollout.model.text import is_run_id
from rollout.ports import ClusterApi


def has_ended_here(lease: LeaseState) -> bool:
    """Whether the lock's holder was on this machine and certainly ended.

    A process keeps its journal open until it ends. A random token names it, because process IDs of
    containers repeat.
    """
    # The holder is `user@machine/pid`.
    user_at_machine, _, _ = lease.holder.rpartition("/")
    _, _, machine = user_at_machine.rpartition("@")
    if machine != socket.gethostname():
        return False
    names_journal = lease.process and is_run_id(lease.run_id)
    if not names_journal:
        return False
    path = journal_of(lease.run_id)
    try:
        headers = [record for record in read_journal(path) if record.get("type") == "run"]
    except OSError:
        return False
    is_its_journal = bool(headers) and headers[-1].get("process") == lease.process
    if not is_its_journal:
        return False
    # None proves nothing.
    return is_being_written(path) is False


def read_lock(api: ClusterApi, namespace: str) -> LockSnapshot:
    """Read the lock once, which may not tell whether the holder is alive."""
    lease = with_retries(read_lease, api, namespace)
    return LockSnapshot(lease, api.server_time(), has_ended=has_ended_here(lease))


def watch_for_holder(api: ClusterApi, namespace: str) -> bool:
    """Return whether the holder lives. May wait until a renewal is due."""
    state = await_renewal(new_lease_watch(), lambda: with_retries(read_lease, api, namespace), say)
    return state is HolderState.ALIVE


def new_lease_watch() -> LeaseWatch:
    return LeaseWatch(wiring.system_clock(), has_ended_here)


def refuse_if_locked(
    api: ClusterApi, namespace: str, watch: LeaseWatch | None = None
) -> LeaseWatch | None:
    """Raise `LockedError` if the holder lives. May wait for a renewal.

    Otherwise return a watch that has seen the Lease, so that the lock can be taken sooner. Return
    None without the right to read the Lease.
    """
    watch = watch or new_lease_watch()
    try:
        state = await_renewal(
            watch, lambda: with_retries(read_lease, api, namespace), say, api.server_time
        )
    except ApiError as error:
        if not error.is_forbidden:
            raise
        # A later check reports the missing right.
        return None
    # `LeaseLock` waits for a holder whose state is UNKNOWN.
    if state is HolderState.ALIVE:
        lock = read_lock(api, namespace)
        raise locked_error(lock.lease, namespace, age=lock.age if lock.has_exact_age else None)
    return watch
