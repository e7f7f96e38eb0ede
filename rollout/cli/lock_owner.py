"""Whether whoever holds the lock was a process of this machine, and has ended: told by the journal of its run."""

import socket
from pathlib import Path

from rollout.adapters.journal import SUFFIX, is_let_go, read_journal, runs_directory
from rollout.execution.lease import LeaseState
from rollout.model.names import is_run_id


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
    return bool(begun) and begun[-1].get("process") == lease.process and is_let_go(path)


def journal_of(run: str) -> Path:
    """Its file; an id that came from elsewhere was checked where it was read, and is no path."""
    if not is_run_id(run):
        raise AssertionError(f"{run!r} is not a rollout id")
    return runs_directory() / f"{run}{SUFFIX}"
