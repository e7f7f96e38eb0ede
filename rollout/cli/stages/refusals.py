"""What keeps a command from beginning, found out before anything is touched: each refusal names all its reasons."""

from collections.abc import Sequence

from rollout.cli.log import stage
from rollout.cli.settings.schema import Allow
from rollout.cli.stages.gather import find_unfinished_among, with_patience
from rollout.cli.stages.lock import glance_at_lock
from rollout.cli.stages.session import Session
from rollout.cli.terminal import say
from rollout.errors import (
    ApiError,
    ApiUnavailableError,
    BlockedError,
    LockedError,
)
from rollout.execution.record.memory import why_unwritable
from rollout.execution.record.record import has_begun
from rollout.execution.record.unfinished import Unfinished, word_of
from rollout.gather.cluster.documents import memory_of, read_slots, slots_of
from rollout.gather.cluster.rights import apply_rights, missing_rights
from rollout.model import marks
from rollout.model.cluster import ClusterIdentity, Node
from rollout.model.plan import Blocker, BlockerKind, RolloutPlan
from rollout.model.text import counted
from rollout.ports import ClusterApi
from rollout.report.plan_parts import finding_lines
from rollout.report.unfinished import heading, ways_out

_FORBIDDEN = 403


def refuse_without_rights(session: Session, *, unattended: bool) -> None:
    """Raise `ApiError` naming every right that a rollout needs and this user lacks: one missing costs a node.

    Unattended passes need their memory, too: without it a bad version costs a node each night. `BlockedError` where
    they have the right to it, and it cannot be written all the same.
    """
    rights = apply_rights(session.namespace, disable_eviction=session.policy.drain.disable_eviction)
    remembers = marks.MEMORY_NAME if unattended else None
    needed = [right for right in rights if not right.optional or right.name == remembers]
    with stage("ask for the rights") as note:
        missing = missing_rights(session.api, needed, ask=with_patience)
        note(f"{len(missing)} of {len(needed)} missing")
    if missing:
        raise ApiError(
            f"this user may not: {'; '.join(f'{right} (to {right.purpose})' for right in missing)}",
            status=_FORBIDDEN,
            hint="Get these rights granted: `rollout manifests roles` prints a ClusterRole and Roles with them all.",
        )
    if unattended:
        _refuse_without_memory(session.api, session.namespace)


def _refuse_without_memory(api: ClusterApi, namespace: str) -> None:
    if why := with_patience(lambda: why_unwritable(api, namespace)):
        document = memory_of(namespace)
        raise BlockedError(
            f"{document.origin} cannot be written: {why.message}. What fails could not be remembered, and no pass "
            "begins without that",
            hint=document.way_out(why),
        )


def refuse_unfinished(session: Session, nodes: Sequence[Node]) -> None:
    """Raise `LockedError` beside a rollout that runs or was interrupted; `BlockedError` where that cannot be told."""
    api, namespace = session.api, session.namespace
    unfinished = find_unfinished_among(session, nodes)
    if unfinished is not None and unfinished.blocks:
        alive = glance_at_lock(api, namespace).alive
        # one that was killed before it had begun anything stands in nobody's way
        if alive or unfinished.is_garbled or has_begun(unfinished.run, nodes):
            hint = f"If no process is working on it: {ways_out(unfinished)}."
            raise LockedError(heading(unfinished, word_of(unfinished, alive=alive)), hint=hint)
    _refuse_unknown_slots(api, namespace)


def _refuse_unknown_slots(api: ClusterApi, namespace: str) -> None:
    """Where this user may not see them, and nothing on the nodes speaks of FleetLock, there is none."""
    try:
        with_patience(lambda: read_slots(api, namespace))
    except ApiUnavailableError:
        raise
    except ApiError as error:
        if error.status != _FORBIDDEN:
            raise BlockedError(
                f"{error.message}: whether hosts hold slots of FleetLock is not known, and another rollout may be "
                "under way",
                hint="Run the version of rollout that wrote it; where no FleetLock server is used any more: "
                f"kubectl -n {namespace} delete configmap {slots_of(namespace).name}",
            ) from error


def refuse_unknown_rules(unfinished: Unfinished) -> None:
    """`BlockedError` for a rollout whose rules are not known."""
    if unfinished.record.problem:
        raise BlockedError(
            f"{heading(unfinished)}: without its record its rules are not known, so it is not resumed",
            hint="rollout abort gives back what was started, and removes a record that is not understood.",
        )


def refuse_another_cluster(plan: RolloutPlan | None, identity: ClusterIdentity) -> None:
    """`BlockedError` for a record that was made on another cluster: as a backup that was restored here has it."""
    uids = {plan.cluster.uid if plan else "", identity.uid} - {""}
    if plan is not None and len(uids) > 1:
        raise BlockedError(
            f"the record of the rollout {plan.plan_id} is of another cluster, {plan.cluster.server}: it is not resumed",
            hint="If it came with a backup that was restored here: rollout abort removes it.",
        )


def refused(session: Session, plan: RolloutPlan) -> Sequence[Blocker]:
    """Return what of that which stands in its way keeps a plan from being begun."""
    return [blocker for blocker in plan.blockers if _word(blocker) not in session.settings.nodes.allow]


def _word(blocker: Blocker) -> str:
    """Return what `--allow` takes to try it all the same; what many nodes depend on has a word of its own."""
    match blocker.kind:
        case BlockerKind.RIVAL:
            return ""
        case BlockerKind.CONTROL_PLANE_UNHEALTHY | BlockerKind.STORAGE_UNHEALTHY:
            return Allow.UNHEALTHY
        case _:
            return Allow.BLOCKED


def refuse_unfit(session: Session, plan: RolloutPlan) -> None:
    """Raise `BlockedError` where something is bound to stop the run, all of it named at once."""
    if blockers := refused(session, plan):
        words = ",".join(sorted({_word(blocker) for blocker in blockers} - {""}))
        leave = "leave those nodes out (--skip blocked, --exclude)"
        raise BlockedError(
            f"not started: {_blocked(blockers)}",
            details=tuple(finding_lines(blockers)),
            hint=f"Clear this, {leave}, or try them (--allow {words})." if words else f"Clear this, or {leave}.",
        )


def why_blocked(session: Session, plan: RolloutPlan) -> str:
    """Return the same, having warned of it, where a rollout has nodes under way: those go on, and no other is begun.

    Beside another coordinator, who may have taken them meanwhile, they do not.
    """
    if not (blockers := refused(session, plan)):
        return ""
    if any(blocker.kind is BlockerKind.RIVAL for blocker in blockers):
        refuse_unfit(session, plan)
    say(f"warning: {_blocked(blockers)}: nodes under way are finished, no other is started")
    for line in finding_lines(blockers):
        say(f"  {line}")
    return _blocked(blockers)


def _blocked(blockers: Sequence[Blocker]) -> str:
    nodes = len({blocker.node for blocker in blockers if blocker.node})
    return f"blocked on {counted(nodes, 'node')}" if nodes else "blocked"
