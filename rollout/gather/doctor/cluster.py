from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from rollout.errors import ApiError
from rollout.gather.cluster.documents import Document
from rollout.gather.cluster.rights import Right
from rollout.gather.doctor.checks import NO_FIX, Check, CheckName, Fix, failed, passed, warned
from rollout.gather.hosts.identity import MACHINE_ID_FIX, ambiguous_machine_ids
from rollout.model.cluster import ClusterIdentity, Node
from rollout.model.finding import PausedByAnnotation, RivalMark
from rollout.model.marks import RIVAL_PAUSES
from rollout.model.memory import RESET_COMMAND, RESET_EFFECT, Memory, Pause
from rollout.model.node_marks import UNCLEAR_HINT, pause_on, why_paused
from rollout.model.plan import (
    Blocker,
    BlockerKind,
    Exclusion,
    ExclusionReason,
    RolloutPlan,
    WarningKind,
)
from rollout.model.text import capitalize, counted, name_excerpt, shell_word, shortened
from rollout.model.timestamps import elapsed
from rollout.wording.words import object_name

_SKEW_SECONDS = 30.0
_ALL_EXCLUDED_FIX = Fix("Exclude fewer nodes: --exclude names all that are selected.")
_EMPTY_POOL_FIX = Fix.with_commands(
    "Compare its selector with the nodes' labels, and with the pools above it",
    "kubectl get nodes --show-labels",
)
_WITHOUT_POOL_FIX = Fix(
    "They are rebooted last, with the settings outside [[pool]]. Add a pool for them, unless you"
    " intend that."
)


def api_server_check(identity: ClusterIdentity) -> Check:
    version = identity.version or "of an unknown version"
    message = f"the API server responds, and accepts this user: {version}"
    return passed(CheckName.KUBECONFIG, identity.server, message)


def clock_checks(own_time: datetime, server_time: datetime | None) -> Iterator[Check]:
    seconds_ahead = (own_time - server_time).total_seconds() if server_time else 0.0
    if abs(seconds_ahead) > _SKEW_SECONDS:
        word = "ahead of" if seconds_ahead > 0 else "behind"
        skew = elapsed(abs(seconds_ahead))
        message = (
            f"this machine's clock is {skew} {word} the API server's, and windows"
            " follow this machine's clock"
        )
        yield warned(CheckName.CLOCK, "this machine", message, Fix("See timedatectl on both."))


def right_checks(needs: Iterable[Right], missing: Sequence[Right]) -> Iterator[Check]:
    for right in dict.fromkeys(needs):
        if right not in missing:
            yield passed(CheckName.RIGHT, str(right), f"granted: {right.purpose}")
        else:
            make_check = warned if right.optional else failed
            yield make_check(
                CheckName.RIGHT,
                str(right),
                f"not granted: rollout cannot {right.purpose}",
                _RIGHTS_FIX,
            )


def lock_check(
    subject: str,
    holder: str,
    *,
    holder_is_alive: bool,
    unfinished: str = "",
    ways_out: str = "",
    blocks_others: bool = False,
) -> Check:
    """Check the lock `subject`, NAMESPACE/NAME.

    Empty `holder`: nobody. `unfinished` is a clause about a rollout, `ways_out` the remedy.
    """
    if holder_is_alive:
        fix = Fix.with_commands("Wait until it has ended", "rollout status --run")
        return warned(
            CheckName.LOCK,
            subject,
            f"held by {name_excerpt(holder)}: a rollout is in progress",
            fix,
        )
    if unfinished:
        make_check = failed if blocks_others else warned
        return make_check(CheckName.LOCK, subject, unfinished, Fix(f"{ways_out}."))
    if holder:
        message = (
            f"held by {name_excerpt(holder)}, which is not renewing it; rollout takes it over when"
            " it expires"
        )
        return warned(
            CheckName.LOCK,
            subject,
            message,
            Fix("Make sure that no rollout of this holder is still running."),
        )
    return passed(CheckName.LOCK, subject, "the lock is free, and no rollout is unfinished")


def unreadable_lock_check(subject: str, error: ApiError) -> Check:
    namespace, _, name = subject.partition("/")
    try_it = Fix.with_commands("Try", f"kubectl -n {namespace} get lease {name}")
    fix = Fix(error.hint) if error.hint else try_it
    return warned(CheckName.LOCK, subject, f"the lock cannot be read: {error.message}", fix)


def memory_checks(memory: Memory, subject: str) -> Iterator[Check]:
    if memory.why_unreadable:
        reset = Fix.with_commands(RESET_EFFECT, RESET_COMMAND)
        fix = _RIGHTS_FIX if memory.denied else reset
        yield failed(CheckName.MEMORY, subject, memory.why_unreadable, fix)
    for version, failures in memory.versions.items():
        if failures.held_since:
            message = (
                f"held since {failures.held_since}: it failed on"
                f" {counted(len(failures.nodes), 'node')}"
            )
            fix = Fix.with_commands(
                "After fixing the cause", f"rollout release {shell_word(version)}"
            )
            yield warned(CheckName.MEMORY, version, message, fix)


def unwritable_record_check(record: Document, refusal: ApiError) -> Check:
    message = f"cannot be written, so no rollout can start: {refusal.message}"
    # The holder of the lock writes the record.
    return failed(CheckName.LOCK, record.origin, message, Fix(record.hint_for(refusal)))


def unwritable_memory_check(memory: Document, refusal: ApiError) -> Check:
    message = (
        "cannot be written, so failures are not stored, and no pass of operate starts:"
        f" {refusal.message}"
    )
    return warned(CheckName.MEMORY, memory.origin, message, Fix(memory.hint_for(refusal)))


def machine_id_checks(nodes: Sequence[Node]) -> Iterator[Check]:
    for ambiguity in ambiguous_machine_ids(nodes):
        message = (
            f"{ambiguity.cause}. rollout identifies hosts by their boot IDs, but FleetLock cannot"
            " tell these hosts apart"
        )
        yield warned(CheckName.IDENTITY, ambiguity.nodes[0], message, Fix(MACHINE_ID_FIX))


def pause_checks(memory: Memory, nodes: Sequence[Node], now: datetime | None) -> Iterator[Check]:
    pause_of_all = memory.pause
    if pause_of_all is not None:
        subject = "all nodes"
        if pause_of_all.is_over(now):
            yield _ended_pause_check(subject, pause_of_all, "rollout unpause --all")
        else:
            fix = Fix.with_commands("To end it", "rollout unpause --all")
            yield warned(CheckName.PAUSE, subject, str(pause_of_all), fix)
    for node in nodes:
        pause = pause_on(node)
        # Excluded nodes have their own check.
        if pause is not None and pause.is_over(now):
            yield _ended_pause_check(node.name, pause, f"rollout unpause {node.name}")
    aborted = memory.aborted
    if aborted:
        message = f"stopped: rollout {aborted.reason} was aborted by {aborted.by} at {aborted.at}"
        yield warned(
            CheckName.PAUSE,
            "unattended passes",
            message,
            Fix.with_commands("Start them again", "rollout unpause --unattended"),
        )


def _ended_pause_check(subject: str, pause: Pause, command: str) -> Check:
    fix = Fix.with_commands("Remove it", command)
    return warned(CheckName.PAUSE, subject, f"its pause has ended: {pause}", fix)


def selection_check(subject: str, selected: int, nodes: int) -> Check:
    message = f"{selected} of {counted(nodes, 'node')} are selected"
    if selected:
        return passed(CheckName.NODES, subject, message)
    return warned(CheckName.NODES, subject, f"{message}: no host was contacted", _ALL_EXCLUDED_FIX)


def pool_checks(nodes_by_pool: Mapping[str, Sequence[str]], default: str) -> Iterator[Check]:
    """Warn of empty pools, and of nodes in the pool `default`."""
    for pool, nodes in nodes_by_pool.items():
        is_default = pool == default
        if not is_default and nodes:
            yield passed(CheckName.POOL, pool, counted(len(nodes), "node"))
        elif not is_default:
            message = "no selected node belongs to it: none matches, or an earlier pool has them"
            yield warned(CheckName.POOL, pool, message, _EMPTY_POOL_FIX)
        elif nodes:
            message = f"{counted(len(nodes), 'node')} in no pool: {shortened(nodes)}"
            yield warned(CheckName.POOL, pool, message, _WITHOUT_POOL_FIX)


_RIGHTS_FIX = Fix.with_commands(
    "Ask an administrator to grant it. To print a ClusterRole and Roles with every permission, run",
    "rollout manifests roles",
)
_RESOLVE_FIX = Fix("Resolve it, or use --skip blocked.")
_DETAILS_FIX = Fix.with_commands("For details, run", "rollout plan")
_OWN_NODE_FIX = Fix(
    "Run rollout from outside the cluster, or from a pod that can run on another node."
)
_CAN_BE_REBOOTED = "When it is safe to reboot the node, run"


def rival_checks(rivals: Sequence[Blocker]) -> Iterator[Check]:
    for rival in rivals:
        yield failed(CheckName.RIVAL, rival.object, rival.cause, Fix(rival.fix))
    if not rivals:
        yield passed(CheckName.RIVAL, "cluster", "no other reboot coordinator was found")


def exclusion_checks(
    plan: RolloutPlan,
    nodes: Iterable[Node],
    *,
    rival_marks: Mapping[str, Sequence[RivalMark]],
    self_rebooting: Container[str],
) -> Iterator[Check]:
    """Check excluded nodes, if something can be done.

    `self_rebooting` nodes' only rival is their host, which has its own check.
    """
    by_name = {node.name: node for node in nodes}
    for exclusion in plan.excluded:
        node = by_name[exclusion.node]
        if exclusion.reason is ExclusionReason.RIVAL:
            has_own_check = node.name in self_rebooting
            if not has_own_check:
                fix = _rival_fix(exclusion, rival_marks.get(node.name, ()))
                yield failed(CheckName.RIVAL, node.name, exclusion.brief, fix)
            continue
        fix = _exclusion_fix(exclusion, node)
        if fix != NO_FIX:
            yield warned(CheckName.NODE, node.name, exclusion.message, fix)


def _rival_fix(exclusion: Exclusion, marks: Sequence[RivalMark]) -> Fix:
    if not marks:
        # A pod, or a service on the host, shows that it is installed.
        return Fix(f"Stop it, or --exclude the node; {exclusion.fix}")
    rivals = dict.fromkeys(mark.rival for mark in marks)
    flags = " ".join(f"--allow {rival}" for rival in rivals)
    text = f"Stop it, use --exclude or {flags}; or, if it is no longer installed, run"
    commands: list[str] = []
    for mark in marks:
        commands += mark.commands
    return Fix.with_commands(text, *commands)


def _exclusion_fix(exclusion: Exclusion, node: Node) -> Fix:
    match exclusion.reason:
        case ExclusionReason.NOT_READY:
            fix = Fix.with_commands("Find out why", f"kubectl describe node {node.name}")
        case ExclusionReason.LEFT_CORDONED:
            fix = Fix.with_commands("Show the progress of its rollout", "rollout status --run")
        case ExclusionReason.CORDONED if node.unschedulable:
            text = "When it no longer needs to be cordoned, run"
            fix = Fix.with_commands(text, f"kubectl uncordon {node.name}")
        case ExclusionReason.CORDONED:
            fix = Fix(capitalize(exclusion.fix))
        case ExclusionReason.UNKNOWN_MARKS:
            fix = Fix(UNCLEAR_HINT.format(name=node.name))
        case ExclusionReason.OWN_NODE:
            fix = _OWN_NODE_FIX
        case ExclusionReason.PAUSED:
            fix = _pause_fix(node)
        case _:
            fix = NO_FIX
    return fix


def _pause_fix(node: Node) -> Fix:
    # Without a time, a pause that is over still counts.
    pause = why_paused(node, now=None)
    if pause is None:
        return Fix.with_commands("When it is safe to reboot nodes, run", "rollout unpause --all")
    command = f"rollout unpause {node.name}"
    if isinstance(pause, PausedByAnnotation) and pause.annotation in RIVAL_PAUSES:
        command = f"kubectl annotate node {node.name} {pause.annotation}-"
    return Fix.with_commands(_CAN_BE_REBOOTED, command)


def drain_checks(plan: RolloutPlan) -> Iterator[Check]:
    reported = set[str]()
    for blocker in plan.blockers:
        reported.add(blocker.node)
        # Rivals and held versions have their own checks.
        if blocker.kind is not BlockerKind.RIVAL:
            message = f"{object_name(blocker.object)}: {blocker.message}"
            yield failed(CheckName.DRAIN, blocker.node, message, _RESOLVE_FIX)
    for warning in plan.warnings:
        if warning.kind is not WarningKind.VERSION_HELD:
            reported.add(warning.node)
            message = f"{object_name(warning.object)}: {warning.message}"
            yield warned(CheckName.DRAIN, warning.node or "cluster", message, _DETAILS_FIX)
    for node in plan.nodes:
        if node.name not in reported:
            yield passed(CheckName.DRAIN, node.name, f"{node.evict} pods can be moved")
