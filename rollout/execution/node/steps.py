"""One node's update, with a step for each phase."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

from msgspec.structs import replace

from rollout.errors import ApiNotFoundError, DrainError, RolloutError
from rollout.execution.base.reporting import Endings
from rollout.execution.drain.completion import StillRunningError
from rollout.execution.drain.drain import drain
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.checks import AFTER, BEFORE, await_checks, run_playbook
from rollout.execution.node.claim import DELETED, check_eligible, claim_and_cordon, take_up
from rollout.execution.node.context import (
    NodeContext,
    Progress,
    with_pre_reboot_check,
    with_staged_version,
)
from rollout.execution.node.ending import end_without_success, remember
from rollout.execution.node.failures import (
    NodeFailure,
    NotStartedError,
    RefusedError,
    StoppedError,
    WithheldError,
)
from rollout.execution.node.marking import (
    count_ineffective_reboots,
    is_excluded_by_us,
    mark_phase,
    return_node,
)
from rollout.execution.node.proof import await_own_pods, await_ready, prove_detected
from rollout.execution.node.reboot import (
    RebootDelivery,
    RefilledError,
    ask_for_reboot,
    check_drained_and_detached,
)
from rollout.execution.node.rejoin import retry_if_node_lost
from rollout.execution.node.rescue import await_boot_or_rescue
from rollout.execution.node.rollback import objection_to_target, undoing_failed_rollback
from rollout.execution.node.ssh_host import SshHost
from rollout.execution.node.staged import RestagedError, approve_restaged, check_staged, is_approved
from rollout.execution.node.watched import watched_node
from rollout.gather.hosts.identity import verify_identities
from rollout.gather.hosts.probe import BootFacts
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.detection import targets_text
from rollout.model.host import HostFacts, HostObservation
from rollout.model.plan import ExclusionReason
from rollout.model.progress import Activity, Edge, NodeResult, Outcome, Phase
from rollout.model.quantity import Duration
from rollout.planning.eligibility.memory import MOST_INEFFECTIVE_REBOOTS, NodeEnd
from rollout.wording import text

# Acts in the phase of its progress, and returns the next.
Step = Callable[[NodeContext, Progress], Progress]

_MOST_REPEATED_DRAINS = 3
_MOST_RESTAGINGS = 5
_TICK = 0.5


def process_node(context: NodeContext, steps: Mapping[Phase, Step]) -> NodeResult:
    """Return how the node ended, also if it failed."""
    progress = Progress()
    with ExitStack() as stack:
        try:
            if context.is_taken_up:
                progress = take_up(context)
            while progress.phase is not Phase.DONE:
                if context.watched is None and progress.phase is not Phase.PENDING:
                    watched = stack.enter_context(watched_node(context))
                    context = replace(context, watched=watched)
                _report_phase(context, progress)
                context.engine.show_phase(context.name, progress.phase)
                step = steps[progress.phase]
                progress = step(_context_of_step(context, progress), progress)
        # Before RolloutError, which ends the node: this one has it tried again.
        except RefusedError as error:
            return NodeResult(
                node=context.name,
                outcome=error.outcome,
                phase=Phase.PENDING,
                seconds=context.seconds,
                message=error.message,
                is_refused=True,
            )
        except RolloutError as error:
            return end_without_success(_with_approved_version(context, progress), progress, error)
        return _end_with_success(context, progress)


def ssh_steps(host: SshHost) -> Mapping[Phase, Step]:
    """`host`: the node's, which is also `NodeContext.host`."""
    return {
        Phase.PENDING: partial(_check_and_cordon, host),
        Phase.CORDONED: prepare_drain,
        Phase.DRAINING: partial(_drain_and_mark, host),
        Phase.DRAINED: partial(_reboot, host),
        Phase.REBOOTING: partial(_prove_boot, host),
        Phase.BOOTED: partial(_prove_ready, host),
        Phase.READY: partial(_finish, host),
    }


def _end_with_success(context: NodeContext, progress: Progress) -> NodeResult:
    _report_phase(context, progress)
    reboots = progress.ineffective_reboots
    end = NodeEnd(Outcome.SUCCEEDED, Phase.DONE, ineffective_reboots=reboots)
    # Forgets the node's failures, or has it back off if its reboots change nothing.
    remember(_with_approved_version(context, progress), end)
    return NodeResult(
        node=context.name,
        outcome=Outcome.SUCCEEDED,
        phase=Phase.DONE,
        seconds=context.seconds,
        message=progress.note,
        version=progress.version,
        edge=progress.edge,
    )


def _report_phase(context: NodeContext, progress: Progress) -> None:
    context.report.step(
        context.name,
        progress.phase,
        endings=progress.endings if progress.phase is Phase.DRAINED else (),
        staged=_staged_since_plan(context, progress),
        edge=progress.edge,
    )


def _context_of_step(context: NodeContext, progress: Progress) -> NodeContext:
    """Set the approved version and, before the reboot, a stricter `check_may_act`."""
    return with_pre_reboot_check(_with_approved_version(context, progress), progress.phase)


def _with_approved_version(context: NodeContext, progress: Progress) -> NodeContext:
    """Set the approved version; before the claim approves one, keep the planned version."""
    return with_staged_version(context, progress.staged_version) if progress.marked else context


def _staged_since_plan(context: NodeContext, progress: Progress) -> str:
    """Return the approved version, empty if it is the planned one."""
    approved = _with_approved_version(context, progress).planned.staged_version
    return approved if approved != context.planned.staged_version else ""


def _check_and_cordon(host: SshHost, context: NodeContext, progress: Progress) -> Progress:
    """Check the node again, because much may have changed since the plan."""
    context.check_may_act()
    _check_not_own(context, Outcome.SKIPPED)
    try:
        node, observation = _observe_node(context, host)
    except ApiNotFoundError as error:
        raise NotStartedError(DELETED, ExclusionReason.DELETING) from error
    # Below, `check_eligible` refuses other observations.
    if isinstance(observation, HostFacts):
        _check_same_boot(context, observation)
    if node.annotations.get(marks.RUN) == context.run_id and not context.is_taken_up:
        raise NodeFailure(
            Outcome.SKIPPED,
            "another process of this rollout has started it; run: rollout resume",
        )
    facts = check_eligible(context, node, observation)
    staged_version = facts.detection.staged_version
    targets = facts.detection.targets
    context_of_staged = with_staged_version(context, staged_version)
    if staged_version != context.planned.staged_version:
        # The gates were asked about the planned version.
        objection = objection_to_target(
            context, staged_version
        ) or context.engine.objection_to_version(context_of_staged.planned, staged_version)
        if objection:
            raise NotStartedError(finding=objection)
    context.engine.run_gate_command(context_of_staged)
    claim_and_cordon(context_of_staged, staged_version, facts, detected=targets_text(targets))
    approved = replace(progress, staged_version=staged_version, targets=targets, marked=True)
    return approved.move(Edge.CORDONED)


def _check_not_own(context: NodeContext, outcome: Outcome) -> None:
    """`NodeFailure` if this process runs on the node: a drain would end it."""
    if context.own is not None:
        raise NodeFailure(outcome, finding=context.own.finding)


def _check_same_boot(context: NodeContext, facts: HostFacts) -> None:
    if facts.machine_id != context.planned.machine_id:
        raise NotStartedError(
            "the host's machine ID has changed since the plan was made", ExclusionReason.WRONG_HOST
        )
    if facts.boot_id != context.planned.boot_id:
        raise NotStartedError("its host has rebooted since the plan was made")


def _observe_node(context: NodeContext, host: SshHost) -> tuple[Node, HostObservation]:
    observation = host.observe(context.now)
    node = context.read_node()
    return node, verify_identities((node,), {node.name: observation})[node.name]


def _approve_staged(context: NodeContext, host: SshHost, progress: Progress) -> Progress | None:
    """Approve what the host has staged now; return None if nothing is new."""
    _, observation = _observe_node(context, host)
    if not isinstance(observation, HostFacts):
        # The host is silent: it is asked again on the connection that requests the reboot.
        return None
    if observation.boot_id != context.planned.boot_id:
        # It has rebooted by itself, which `ask_for_reboot` notices.
        return None
    detection = observation.detection
    check_staged(context, detection)
    if is_approved(context, progress.targets, detection):
        return None
    approve_restaged(context, progress.phase, detection)
    return replace(progress, staged_version=detection.staged_version, targets=detection.targets)


def _repeat_for_restaged(progress: Progress) -> Progress:
    """Return to the same phase for another staged update; `WithheldError` after too many."""
    if progress.restagings >= _MOST_RESTAGINGS:
        raise WithheldError("its host keeps staging other updates")
    # The next report of the phase must not repeat the ended drain.
    counted = replace(progress, restagings=progress.restagings + 1, endings=())
    return counted.move(Edge.RESTAGED)


def prepare_drain(context: NodeContext, progress: Progress) -> Progress:
    _check_not_own(context, Outcome.ABORTED)
    exclusion = context.policy.exclude_from_load_balancers
    if exclusion and is_excluded_by_us(context.read_node()):
        detail = f"waiting {exclusion} for load balancers to stop using the node"
        _wait_as_configured(context, exclusion, detail, Phase.CORDONED)
    delay = context.policy.courtesy.drain_delay
    if delay:
        detail = f"waiting {delay} before its drain (drain.delay)"
        _wait_as_configured(context, delay, detail, Phase.CORDONED)
        _check_window(context, "while its drain was delayed", Outcome.ABORTED)
    checks = context.policy.gates.hooks.before
    if checks:
        await_checks(context, checks, BEFORE, Phase.CORDONED)
        _check_window(context, "while its checks ran", Outcome.SKIPPED)
    _mark_draining(context)
    return progress.move(Edge.DRAIN_STARTED)


def _mark_draining(context: NodeContext) -> None:
    node = mark_phase(context, Phase.DRAINING)
    if not node.unschedulable:
        raise DrainError(
            f"{context.name} was uncordoned outside this rollout before it was drained"
        )


def delay_reboot(context: NodeContext) -> None:
    delay = context.policy.courtesy.reboot_delay
    if delay:
        detail = f"waiting {delay} before its reboot (reboot.delay)"
        _wait_as_configured(context, delay, detail, Phase.DRAINED)
        _check_window(context, "while its reboot was delayed", Outcome.ABORTED)


def _check_window(context: NodeContext, when: str, outcome: Outcome) -> None:
    if context.engine.is_window_closed(context.planned):
        raise NodeFailure(outcome, f"not rebooted: the window closed {when}")


def _wait_as_configured(context: NodeContext, seconds: Duration, detail: str, phase: Phase) -> None:
    """Wait; `StoppedError` once a stop is due, whatever `waves.stop` says."""
    context.report_step(phase, detail, activity=Activity.WAITING)
    deadline = context.cluster.deadline(seconds)
    while not deadline.expired:
        context.check_may_act()
        if context.engine.stop.is_due:
            raise StoppedError(text(context.engine.stop.reason))
        deadline.pause(_TICK)


def drain_or_withhold(task: NodeTask) -> Endings:
    """As `drain`, but `WithheldError` (no reboot) if pods have not completed in time."""
    try:
        return drain(task)
    except StillRunningError as error:
        raise WithheldError(finding=error.finding) from error


def _drain_and_mark(host: SshHost, context: NodeContext, progress: Progress) -> Progress:
    if context.engine.playbooks is None:
        # `_approve_staged` uses it. After a playbook, another update may be staged.
        host.look_early(context.now)
    endings = drain_or_withhold(context)
    mark_phase(context, Phase.DRAINED)
    return replace(progress, endings=endings).move(Edge.EVICTED)


def _reboot(host: SshHost, context: NodeContext, progress: Progress) -> Progress:
    """Request the reboot; usually the next phase is REBOOTING.

    It is DRAINING if pods have come to the node, and DRAINED if another update is staged.
    """
    is_first_time = not (progress.repeated_drains or progress.restagings)
    if is_first_time:
        delay_reboot(context)
    run_playbook(context)
    restaged = _approve_staged(context, host, progress)
    if restaged is not None:
        # This step runs again, so that the playbook sees the new version.
        return _repeat_for_restaged(restaged)
    try:
        check_drained_and_detached(context)
        # First: after a crash, only the mark says that the host may be rebooting.
        mark_phase(context, Phase.REBOOTING)
        with undoing_failed_rollback(context, host):
            delivery = ask_for_reboot(context, host, progress.targets)
    except RefilledError as error:
        return drain_again(context, progress, error)
    except RestagedError:
        # The step approves the new version when it runs again.
        return _repeat_for_restaged(progress)
    in_doubt = delivery is RebootDelivery.IN_DOUBT
    return replace(progress, in_doubt=in_doubt).move(Edge.REBOOT_REQUESTED)


def _prove_boot(host: SshHost, context: NodeContext, progress: Progress) -> Progress:
    """Wait for the new boot; usually the next phase is BOOTED.

    A request in doubt may be repeated, so the next phase can also be DRAINING, or REBOOTING for
    another update.
    """
    try:
        with undoing_failed_rollback(context, host):
            boot = await_boot_or_rescue(context, host, progress.targets, in_doubt=progress.in_doubt)
    except RefilledError as error:
        return drain_again(context, progress, error)
    except RestagedError:
        return _repeat_for_restaged(_approve_staged(context, host, progress) or progress)
    booted = replace(progress, boot=boot)
    retry_if_node_lost(context, booted, Phase.BOOTED, lambda: mark_phase(context, Phase.BOOTED))
    return booted.move(Edge.BOOTED)


def drain_again(context: NodeContext, progress: Progress, refilled: RefilledError) -> Progress:
    """Go back to draining; raise `refilled` after too many times."""
    if progress.repeated_drains >= _MOST_REPEATED_DRAINS:
        raise refilled
    context.report_step(Phase.DRAINING, f"draining again: {refilled.message}")
    _mark_draining(context)
    # After the drain, the reboot is requested anew.
    counted = replace(progress, repeated_drains=progress.repeated_drains + 1, in_doubt=False)
    return counted.move(Edge.REFILLED)


def _prove_ready(host: SshHost, context: NodeContext, progress: Progress) -> Progress:
    def await_and_mark_ready() -> None:
        await_ready(context, progress.boot, context.policy.ready_timeout)
        mark_phase(context, Phase.READY)

    # The host may have booted its old system again.
    with undoing_failed_rollback(context, host, progress.boot):
        retry_if_node_lost(context, progress, Phase.BOOTED, await_and_mark_ready)
    return progress.move(Edge.READY)


def _finish(host: SshHost, context: NodeContext, progress: Progress) -> Progress:
    """Prove the update, and return the node to service."""

    def prove_and_uncordon() -> Progress:
        prove_detected(context, host, progress)
        run_checks_after_reboot(context, progress.boot)
        return return_proven_node(context, progress)

    with undoing_failed_rollback(context, host, progress.boot):
        return retry_if_node_lost(context, progress, Phase.READY, prove_and_uncordon)


def run_checks_after_reboot(context: NodeContext, boot: BootFacts) -> None:
    run_playbook(context, boot)
    await_checks(context, context.policy.gates.hooks.after, AFTER, Phase.READY)


def return_proven_node(context: NodeContext, progress: Progress) -> Progress:
    """Uncordon the node once its own pods are ready."""
    version = progress.version
    await_own_pods(context, context.policy.settle_timeout)
    # The host may have rebooted again during its checks.
    await_ready(context, progress.boot, context.policy.ready_timeout)
    node_before = return_node(context, Outcome.SUCCEEDED, version)
    reboots = count_ineffective_reboots(context, node_before, version)
    note = _ineffective_note(context, progress, reboots)
    return replace(progress, ineffective_reboots=reboots, note=note).move(Edge.PROVEN)


def _ineffective_note(context: NodeContext, progress: Progress, reboots: int) -> str:
    """Return what to report of reboots in a row that have not changed the version, or empty.

    With targets, a single one may have done its work.
    """
    same_version = f"is still running {context.planned.running_version}"
    if reboots >= MOST_INEFFECTIVE_REBOOTS:
        release = f"rollout release --node {context.name}"
        return (
            f"{same_version} after {reboots} reboots in a row: it will not be rebooted again for"
            f" some time ({release})"
        )
    if reboots and not progress.targets:
        return f"{same_version}: the update did not take effect, or none was staged"
    return ""
