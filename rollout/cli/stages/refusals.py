"""What keeps a command from beginning, found out before anything is touched: each refusal names all its reasons.

The lock comes first: whose it is, and whether they live.
"""

import socket
from collections.abc import Sequence
from dataclasses import replace

from rollout.adapters.journal import is_being_written, journal_of, read_journal
from rollout.cli import wiring
from rollout.cli.log import stage
from rollout.cli.settings.schema import Allow
from rollout.cli.stages.gather import Session, find_unfinished_among, with_patience
from rollout.cli.terminal import say
from rollout.errors import ApiError, ApiUnavailableError, BlockedError, LockedError
from rollout.execution.lease import (
    HolderState,
    LeaseSnapshot,
    LeaseState,
    LeaseWatch,
    await_sign,
    locked,
    read_lease,
)
from rollout.execution.record.memory import why_unwritable
from rollout.execution.record.record import has_begun
from rollout.execution.record.unfinished import word_of
from rollout.gather.cluster.documents import memory_of, read_slots, slots_of
from rollout.gather.cluster.rights import allowed, apply_rights, missing_rights
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.plan import Blocker, BlockerKind, RolloutPlan
from rollout.model.text import counted, is_run_id
from rollout.ports import ClusterApi
from rollout.report.plan_screen import finding_lines
from rollout.report.sentences import capitalized
from rollout.report.unfinished import heading, ways_out

# What `--allow` takes to try it all the same; what many nodes depend on has a word of its own, all
# else is `blocked`.
_WORDS = {
    BlockerKind.RIVAL: "",
    BlockerKind.CONTROL_PLANE_UNHEALTHY: Allow.UNHEALTHY,
    BlockerKind.STORAGE_UNHEALTHY: Allow.UNHEALTHY,
}


def has_ended_here(lease: LeaseState) -> bool:
    """Whether the process that holds the lock was on this machine, and is surely gone.

    Users, machines and process ids may be alike in two containers: the word in the journal is not.
    A process has its journal open for as long as it lives.
    """
    machine = lease.holder.rpartition("/")[0].rpartition("@")[2]
    if not (lease.process and is_run_id(lease.run)) or machine != socket.gethostname():
        return False
    path = journal_of(lease.run)
    try:
        begun = [record for record in read_journal(path) if record.get("type") == "run"]
    except OSError:
        return False
    return (
        bool(begun)
        and begun[-1].get("process") == lease.process
        and is_being_written(path) is False
    )


def glance_at_lock(session: Session) -> LeaseSnapshot:
    """Who holds the lock and when they last renewed it, at one look: to be shown, not to decide by."""
    lease = with_patience(read_lease, session.api, session.namespace)
    return LeaseSnapshot(lease, session.api.server_time(), has_ended=has_ended_here(lease))


def is_holder_alive(api: ClusterApi, namespace: str) -> bool:
    """Whether a process holds the lock, and renews it while we look on."""
    return (
        await_sign(lock_watch(), lambda: with_patience(read_lease, api, namespace), say)
        is HolderState.ALIVE
    )


def lock_watch() -> LeaseWatch:
    """Return a watch that knows the processes of this machine."""
    return LeaseWatch(wiring.system_clock(), has_ended_here)


def refuse_beside_living(session: Session) -> Session:
    """`LockedError` while a living process holds the lock; the session with what was seen of it, for who takes it then.

    An operator who names the run to pass over is held against the lock when it is taken.
    """
    api = session.api
    namespace = session.namespace
    watch = session.watch or lock_watch()
    if session.force_unlock:
        return session
    try:
        state = await_sign(
            watch, lambda: with_patience(read_lease, api, namespace), say, api.server_time
        )
    except ApiError as error:
        if not error.is_forbidden:
            raise
        # that this user may not see the lock is told with all the other rights that are missing
        return session
    if state is HolderState.ALIVE:
        seen = glance_at_lock(session)
        raise locked(seen.lease, namespace, age=seen.age if seen.one_clock else None)
    return replace(session, watch=watch)


def refuse_without_rights(session: Session, *, unattended: bool, begins: bool = True) -> None:
    """Raise `ApiError` naming every right that a rollout needs and this user lacks: one missing costs a node.

    Whoever `begins` nodes has to know what is remembered. Unattended passes have to write it, too:
    without it a bad version costs a node each night. `BlockedError` where they have the right to
    it, and it cannot be written all the same.
    """
    unattended = unattended and begins
    rights = apply_rights(session.namespace, disable_eviction=session.policy.drain.disable_eviction)
    needed = [
        right
        for right in rights
        if not right.optional and (begins or right.name != marks.MEMORY_NAME)
    ]
    if unattended:
        needed += [right for right in rights if right.optional and right.name == marks.MEMORY_NAME]
    with stage("ask for the rights") as note:
        missing = missing_rights(needed, lambda right: with_patience(allowed, session.api, right))
        note(f"{len(missing)} of {len(needed)} missing")
    if missing:
        raise ApiError(
            f"this user may not: {'; '.join(f'{right} (to {right.purpose})' for right in missing)}",
            status=403,
            hint=(
                "Get these rights granted: `rollout manifests roles` prints a ClusterRole and Roles"
                " with them all."
            ),
        )
    if unattended and (why := with_patience(why_unwritable, session.api, session.namespace)):
        document = memory_of(session.namespace)
        raise BlockedError(
            f"{document.origin} cannot be written: {why.message}. What fails could not be"
            " remembered, and no pass begins without that",
            hint=document.way_out(why),
        )


def refuse_unfinished(session: Session, nodes: Sequence[Node], *, asks: bool = False) -> str:
    """Raise `LockedError` if a rollout is unfinished; `BlockedError` if that cannot be read.

    One that someone stopped between two nodes is replaced only after a question. One that ended by
    itself with nodes left over, because of a failure or a closed window, is replaced by the next
    rollout. Return what to say about either, empty if there is nothing. An operating process goes
    by its own rules.
    """
    api = session.api
    namespace = session.namespace
    replaced = ""
    unfinished = find_unfinished_among(session, nodes)
    if unfinished is not None and unfinished.blocks:
        alive = glance_at_lock(session).alive
        # one that was killed before it had begun anything stands in nobody's way
        if alive or unfinished.is_garbled or has_begun(unfinished.run, nodes):
            hint = f"If no process is working on it: {ways_out(unfinished)}."
            raise LockedError(heading(unfinished, word_of(unfinished, alive=alive)), hint=hint)
    elif unfinished is not None and unfinished.untouched and not session.unattended:
        standing = heading(unfinished, word_of(unfinished, alive=False))
        if unfinished.was_stopped and not asks:
            raise LockedError(standing, hint=f"Before another apply: {ways_out(unfinished)}.")
        discarded = "Answering yes discards it. To continue it instead: rollout resume"
        replaced = f"{capitalized(standing)}. {discarded if asks else 'This rollout replaces it.'}"
    try:
        with_patience(read_slots, api, namespace)
    except ApiUnavailableError:
        raise
    except ApiError as error:
        # where this user may not see them, and nothing on the nodes speaks of FleetLock, there is
        # none
        if not error.is_forbidden:
            raise BlockedError(
                f"{error.message}: whether hosts hold slots of FleetLock is not known, and another"
                " rollout may be under way",
                hint=(
                    "Run the version of rollout that wrote it; where no FleetLock server is used"
                    f" any more: kubectl -n {namespace} delete configmap {slots_of(namespace).name}"
                ),
            ) from error
    return replaced


def refused(session: Session, plan: RolloutPlan) -> Sequence[Blocker]:
    """Return what of that which stands in its way keeps a plan from being begun."""
    return [
        blocker
        for blocker in plan.blockers
        if _WORDS.get(blocker.kind, Allow.BLOCKED) not in session.settings.nodes.allow
    ]


def refuse_unfit(session: Session, plan: RolloutPlan, *, goes_on: bool = False) -> str:
    """Raise `BlockedError` where something is bound to stop the run, all of it named at once.

    Where a rollout that `goes_on` has nodes under way, warn of it, and return it: those are
    finished, and no other is begun. Beside another coordinator, who may have taken them, they are
    not.
    """
    if not (blockers := refused(session, plan)):
        return ""
    nodes = len({blocker.node for blocker in blockers if blocker.node})
    blocked = f"blocked on {counted(nodes, 'node')}" if nodes else "blocked"
    if not goes_on or any(blocker.kind is BlockerKind.RIVAL for blocker in blockers):
        words = ",".join(
            sorted({_WORDS.get(blocker.kind, Allow.BLOCKED) for blocker in blockers} - {""})
        )
        leave = "leave those nodes out (--skip blocked, --exclude)"
        raise BlockedError(
            f"not started: {blocked}",
            details=tuple(finding_lines(blockers)),
            hint=(
                f"Clear this, {leave}, or try them (--allow {words})."
                if words
                else f"Clear this, or {leave}."
            ),
        )
    say(f"warning: {blocked}: nodes under way are finished, no other is started")
    for line in finding_lines(blockers):
        say(f"  {line}")
    return blocked
