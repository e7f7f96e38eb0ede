"""Refuses commands before anything changes, with all reasons at once."""

from collections.abc import Container, Sequence

from msgspec.structs import replace

from rollout.cli.log import stage
from rollout.cli.settings.schema import Allow
from rollout.cli.stages.cluster import with_retries
from rollout.cli.stages.lock import read_lock
from rollout.cli.stages.unfinished import find_unfinished_among
from rollout.cli.terminal import say
from rollout.errors import ApiError, BlockedError, LockedError
from rollout.execution.record.memory import why_unwritable
from rollout.execution.record.record import may_have_begun
from rollout.execution.record.unfinished import Unfinished, run_state
from rollout.gather.cluster.documents import (
    NotUnderstoodError,
    memory_document,
    read_slots,
    slots_document,
)
from rollout.gather.cluster.rights import Right, apply_rights, has_right, missing_rights
from rollout.model import marks
from rollout.model.cluster import ClusterIdentity, Node
from rollout.model.finding import RestBlocked
from rollout.model.gates import GatePolicy
from rollout.model.plan import Blocker, BlockerKind, RolloutPlan
from rollout.model.policy import Policy
from rollout.model.text import counted
from rollout.ports import ClusterApi
from rollout.report.plan_screen import finding_lines
from rollout.report.unfinished import commands_clause, unfinished_heading


def _overriding_word(blocker: Blocker) -> Allow | None:
    match blocker.kind:
        case BlockerKind.RIVAL:
            # Coordinators are allowed by name when planning.
            return None
        case BlockerKind.CONTROL_PLANE_UNHEALTHY | BlockerKind.STORAGE_UNHEALTHY:
            return Allow.UNHEALTHY
        case _:
            return Allow.BLOCKED


def refuse_without_rights(
    api: ClusterApi,
    namespace: str,
    policy: Policy,
    *,
    unattended: bool,
    has_nodes_in_flight: bool = False,
) -> None:
    """Raise `ApiError` with every permission that this user lacks.

    Raises `BlockedError` if a needed memory is unwritable for another reason.
    """
    # Started nodes are finished even if failures cannot be recorded.
    needs_memory = unattended and not has_nodes_in_flight
    needed = _needed_rights(
        namespace, policy, unattended=unattended, has_nodes_in_flight=has_nodes_in_flight
    )
    with stage("check the permissions") as add_note:
        missing = missing_rights(needed, lambda right: with_retries(has_right, api, right))
        add_note(f"{len(missing)} of {len(needed)} missing")
    if missing:
        lacking = "; ".join(f"{right} (to {right.purpose})" for right in missing)
        raise ApiError(
            f"this user is not allowed to: {lacking}",
            status=403,
            hint=(
                "Ask an administrator to grant this: `rollout manifests roles` prints a ClusterRole"
                " and Roles with all these permissions."
            ),
        )
    problem = with_retries(why_unwritable, api, namespace) if needs_memory else None
    if problem is not None:
        document = memory_document(namespace)
        raise BlockedError(
            f"cannot write {document.origin}: {problem.message}. Failures could not be recorded,"
            " so no pass starts",
            hint=document.hint_for(problem),
        )


def _needed_rights(
    namespace: str, policy: Policy, *, unattended: bool, has_nodes_in_flight: bool
) -> Sequence[Right]:
    if has_nodes_in_flight:
        # Nodes in flight need no gates and no memory to be finished.
        rights = apply_rights(namespace, replace(policy, gates=GatePolicy()))
        return [right for right in rights if not right.optional and not _is_of_memory(right)]
    rights = apply_rights(namespace, policy)
    needed = [right for right in rights if not right.optional]
    if unattended:
        # Without the memory, a bad version would cost a node each night.
        needed += [right for right in rights if right.optional and _is_of_memory(right)]
    return needed


def _is_of_memory(right: Right) -> bool:
    return right.name == marks.MEMORY_NAME


def find_replaced_rollout(
    api: ClusterApi, namespace: str, nodes: Sequence[Node], *, may_replace_stopped: bool
) -> Unfinished | None:
    """Return the ended rollout whose remaining nodes are taken over, or None.

    Raises `LockedError` if a rollout has to be resumed or undone first, and `BlockedError` if that
    is unknown.
    """
    unfinished = find_unfinished_among(api, namespace, nodes)
    replaced: Unfinished | None = None
    if unfinished is not None:
        if unfinished.blocks_others:
            _refuse_if_begun(api, namespace, unfinished, nodes)
        elif unfinished.untouched_nodes:
            replaced = unfinished
    if replaced is not None and replaced.was_stopped and not may_replace_stopped:
        description = unfinished_heading(replaced, run_state(replaced, alive=False))
        raise LockedError(description, hint=f"{commands_clause(replaced)}.")
    _refuse_unreadable_fleetlock(api, namespace)
    return replaced


def _refuse_if_begun(
    api: ClusterApi, namespace: str, unfinished: Unfinished, nodes: Sequence[Node]
) -> None:
    # An unknown state, None, is no reason to refuse.
    alive = read_lock(api, namespace).alive
    if alive or unfinished.is_garbled or may_have_begun(unfinished.run_id, nodes):
        hint = f"If no process is working on it: {commands_clause(unfinished)}."
        raise LockedError(
            unfinished_heading(unfinished, run_state(unfinished, alive=alive)), hint=hint
        )


def _refuse_unreadable_fleetlock(api: ClusterApi, namespace: str) -> None:
    """Raise `BlockedError` for unreadable slots: hosts may be rebooting."""
    try:
        with_retries(read_slots, api, namespace)
    except NotUnderstoodError as error:
        name = slots_document(namespace).name
        raise BlockedError(
            f"{error.message}: rollout cannot tell whether hosts hold FleetLock slots, so another"
            " rollout may be running",
            hint=(
                "Use the version of rollout that wrote it. If you no longer run a FleetLock server,"
                f" run: kubectl -n {namespace} delete configmap {name}"
            ),
        ) from error
    except ApiError as error:
        # The right to read slots is optional: Nodes' marks also show FleetLock's nodes in flight,
        # for which the caller has refused already.
        if not error.is_forbidden:
            raise


def blockers_not_allowed(plan: RolloutPlan, allow: Container[str]) -> Sequence[Blocker]:
    return [blocker for blocker in plan.blockers if _overriding_word(blocker) not in allow]


def refuse_blocked(plan: RolloutPlan, allow: Container[str]) -> None:
    blockers = blockers_not_allowed(plan, allow)
    if not blockers:
        return
    overriding_words = {_overriding_word(blocker) for blocker in blockers}
    words = sorted(word for word in overriding_words if word is not None)
    exclude = "exclude those nodes (--skip blocked, --exclude)"
    hint = f"Resolve the blockers, or {exclude}."
    if words:
        hint = f"Resolve the blockers, {exclude}, or proceed anyway (--allow {','.join(words)})."
    raise BlockedError(
        f"not started: {_blocked_text(blockers)}", details=tuple(finding_lines(blockers)), hint=hint
    )


def warn_of_blocked_rest(plan: RolloutPlan, allow: Container[str]) -> RestBlocked | None:
    """Warn if a rollout's rest is blocked: only started nodes are finished.

    Returns why, or None. Raises `BlockedError` for another coordinator, which may have taken over
    these nodes.
    """
    blockers = blockers_not_allowed(plan, allow)
    if any(blocker.kind is BlockerKind.RIVAL for blocker in blockers):
        refuse_blocked(plan, allow)
    if not blockers:
        return None
    blocked = _blocked_text(blockers)
    say(f"warning: {blocked}; nodes in flight will be finished, but no others will be drained")
    for line in finding_lines(blockers):
        say(f"  {line}")
    return RestBlocked(blocked)


def refuse_other_cluster(unfinished: Unfinished, here: ClusterIdentity) -> None:
    """Raise `BlockedError` for a record of another cluster, as in a backup."""
    plan = unfinished.record.plan
    if plan is None:
        return
    recorded_uid = plan.cluster.uid
    is_unknown = not here.uid or not recorded_uid
    if is_unknown or recorded_uid == here.uid:
        return
    raise BlockedError(
        f"the record of rollout {plan.plan_id} belongs to another cluster"
        f" ({plan.cluster.server}), so it cannot be resumed",
        hint="If the record came from a restored backup, remove it with rollout abort.",
    )


def _blocked_text(blockers: Sequence[Blocker]) -> str:
    nodes = {blocker.node for blocker in blockers if blocker.node}
    verb = "have" if len(nodes) > 1 else "has"
    return f"{counted(len(nodes), 'node')} {verb} blockers" if nodes else "the plan has blockers"
