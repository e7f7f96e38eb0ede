from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

from msgspec.structs import replace

from rollout.errors import ApiNotFoundError, DrainError, RolloutError
from rollout.execution.base.reporting import LongestTerminations
from rollout.execution.drain.completion import StillRunningError
from rollout.execution.drain.drain import drain
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.checks import AFTER, BEFORE, await_checks, run_playbook
from rollout.execution.node.claim import (
    DELETED,
    check_eligible,
    claim_and_cordon,
    continue_from_marks,
)
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
from rollout.execution.node.proof import await_own_pods, await_ready, prove_reboot_worked
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
from rollout.model.finding import Finding
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
    progress = Progress()
    with ExitStack() as stack:
        try:
            if context.started_by_earlier_process:
                progress = continue_from_marks(context)
            while progress.phase is not Phase.DONE:
                is_claimed = progress.phase is not Phase.PENDING
                if is_claimed and context.watched is None:
                    # Others may delete or uncordon the Node from now on.
                    watched = stack.enter_context(watched_node(context))
                    context = replace(context, watched=watched)
                _report_phase(context, progress)
                context.engine.set_phase_conditions(context.name, progress.phase)
                step = steps[progress.phase]
                progress = step(_context_of_step(context, progress), progress)
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
    # If its reboots change nothing, the node backs off.
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
    has_just_drained = progress.phase is Phase.DRAINED
    context.report.step(
        context.name,
        progress.phase,
        longest_terminations=progress.longest_terminations if has_just_drained else (),
        unplanned_version=_unplanned_version(context, progress),
        edge=progress.edge,
    )


def _context_of_step(context: NodeContext, progress: Progress) -> NodeContext:
    return with_pre_reboot_check(_with_approved_version(context, progress), progress.phase)


def _with_approved_version(context: NodeContext, progress: Progress) -> NodeContext:
    """Before the claim approves a version, the planned one stays."""
    if not progress.marked:
        return context
    return with_staged_version(context, progress.staged_version)


def _unplanned_version(context: NodeContext, progress: Progress) -> str:
    planned = context.planned.staged_version
    approved = _with_approved_version(context, progress).planned.staged_version
    return approved if approved != planned else ""


def _check_and_cordon(host: SshHost, context: NodeContext, progress: Progress) -> Progress:
    context.check_may_act()
    _refuse_own_node(context, Outcome.SKIPPED)
    try:
        node, observation = _observe_node(context, host)
    except ApiNotFoundError as error:
        raise NotStartedError(DELETED, ExclusionReason.DELETING) from error
    # Without facts, `check_eligible` says why.
    if isinstance(observation, HostFacts):
        _check_same_machine_and_boot(context, observation)
    has_our_mark = node.annotations.get(marks.RUN) == context.run_id
    if has_our_mark and not context.started_by_earlier_process:
        raise NodeFailure(
            Outcome.SKIPPED,
            "another process of this rollout has started it; run: rollout resume",
        )
    facts = check_eligible(context, node, observation)
    staged_version = facts.detection.staged_version
    targets = facts.detection.targets
    if staged_version != context.planned.staged_version:
        # The rollout was only asked about the planned version.
        _check_unplanned_version(context, staged_version)
    # The gate command and the marks get this version.
    context = with_staged_version(context, staged_version)
    context.engine.run_gate_command(context)
    claim_and_cordon(context, staged_version, facts, detected=targets_text(targets))
    approved = replace(progress, staged_version=staged_version, targets=targets, marked=True)
    return approved.move(Edge.CORDONED)


def _check_unplanned_version(context: NodeContext, version: str) -> None:
    objection: Finding | None = objection_to_target(context, version)
    if objection is None:
        planned = with_staged_version(context, version).planned
        objection = context.engine.objection_to_version(planned, version)
    if objection:
        raise NotStartedError(finding=objection)


def _refuse_own_node(context: NodeContext, outcome: Outcome) -> None:
    """A drain would end this process."""
    if context.own_node is not None:
        raise NodeFailure(outcome, finding=context.own_node.finding)


def _check_same_machine_and_boot(context: NodeContext, facts: HostFacts) -> None:
    if facts.machine_id != context.planned.machine_id:
        raise NotStartedError(
            "the host's machine ID has changed since the plan was made", ExclusionReason.WRONG_HOST
        )
    if facts.boot_id != context.planned.boot_id:
        raise NotStartedError("its host has rebooted since the plan was made")


def _observe_node(context: NodeContext, host: SshHost) -> tuple[Node, HostObservation]:
    observation = host.observe(context.now)
    node = context.read_node()
    verified = verify_identities((node,), {node.name: observation})
    return node, verified[node.name]


def _approve_if_restaged(
    context: NodeContext, host: SshHost, progress: Progress
) -> Progress | None:
    """None if nothing new is staged, or if that is unknown."""
    _, observation = _observe_node(context, host)
    if not isinstance(observation, HostFacts):
        # `ask_for_reboot` asks the host again before the command.
        return None
    if observation.boot_id != context.planned.boot_id:
        # `ask_for_reboot` notices that the host has rebooted by itself.
        return None
    detection = observation.detection
    check_staged(context, detection)
    if is_approved(context, progress.targets, detection):
        return None
    approve_restaged(context, progress.phase, detection)
    return replace(progress, staged_version=detection.staged_version, targets=detection.targets)


def _repeat_for_restaged(progress: Progress) -> Progress:
    if progress.restagings >= _MOST_RESTAGINGS:
        raise WithheldError("its host keeps staging other updates")
    # The terminations were reported before.
    repeated = replace(progress, restagings=progress.restagings + 1, longest_terminations=())
    return repeated.move(Edge.RESTAGED)


def prepare_drain(context: NodeContext, progress: Progress) -> Progress:
    _refuse_own_node(context, Outcome.ABORTED)
    load_balancer_delay = context.policy.exclude_from_load_balancers
    if load_balancer_delay and is_excluded_by_us(context.read_node()):
        detail = f"waiting {load_balancer_delay} for load balancers to stop using the node"
        _wait_as_configured(context, load_balancer_delay, detail, Phase.CORDONED)
    drain_delay = context.policy.courtesy.drain_delay
    if drain_delay:
        detail = f"waiting {drain_delay} before its drain (drain.delay)"
        _wait_as_configured(context, drain_delay, detail, Phase.CORDONED)
        _require_open_window(context, "while its drain was delayed", Outcome.ABORTED)
    checks = context.policy.gates.hooks.before
    if checks:
        await_checks(context, checks, BEFORE, Phase.CORDONED)
        _require_open_window(context, "while its checks ran", Outcome.SKIPPED)
    _mark_draining(context)
    return progress.move(Edge.DRAIN_STARTED)


def _mark_draining(context: NodeContext) -> None:
    node_before = mark_phase(context, Phase.DRAINING)
    if not node_before.unschedulable:
        raise DrainError(
            f"{context.name} was uncordoned outside this rollout before it was drained"
        )


def delay_reboot(context: NodeContext) -> None:
    delay = context.policy.courtesy.reboot_delay
    if delay:
        detail = f"waiting {delay} before its reboot (reboot.delay)"
        _wait_as_configured(context, delay, detail, Phase.DRAINED)
        _require_open_window(context, "while its reboot was delayed", Outcome.ABORTED)


def _require_open_window(context: NodeContext, when: str, outcome: Outcome) -> None:
    if context.engine.is_window_closed(context.planned):
        raise NodeFailure(outcome, f"not rebooted: the window closed {when}")


def _wait_as_configured(context: NodeContext, seconds: Duration, detail: str, phase: Phase) -> None:
    """Any stop ends the wait with `StoppedError`, even if nodes may finish."""
    context.report_step(phase, detail, activity=Activity.WAITING)
    deadline = context.cluster.deadline(seconds)
    while not deadline.expired:
        context.check_may_act()
        if context.engine.stop.is_due:
            raise StoppedError(text(context.engine.stop.reason))
        deadline.pause(_TICK)


def drain_or_withhold(task: NodeTask) -> LongestTerminations:
    try:
        return drain(task)
    except StillRunningError as error:
        raise WithheldError(finding=error.finding) from error


def _drain_and_mark(host: SshHost, context: NodeContext, progress: Progress) -> Progress:
    has_playbooks = context.engine.playbooks is not None
    if not has_playbooks:
        # A playbook may change what is staged.
        host.start_early_observation(context.now)
    longest_terminations = drain_or_withhold(context)
    mark_phase(context, Phase.DRAINED)
    return replace(progress, longest_terminations=longest_terminations).move(Edge.EVICTED)


def _reboot(host: SshHost, context: NodeContext, progress: Progress) -> Progress:
    """The next phase is usually REBOOTING.

    It is DRAINING if pods have come, and again DRAINED for another staged update.
    """
    is_repeated = progress.repeated_drains > 0 or progress.restagings > 0
    if not is_repeated:
        delay_reboot(context)
    run_playbook(context)
    restaged = _approve_if_restaged(context, host, progress)
    if restaged is not None:
        # This step runs again, so that the playbook sees the new version.
        return _repeat_for_restaged(restaged)
    try:
        check_drained_and_detached(context)
        # After a crash, only the mark says that the host may be rebooting.
        mark_phase(context, Phase.REBOOTING)
        # In a rollback, a failure must not leave the other version chosen for the next boot.
        with undoing_failed_rollback(context, host):
            delivery = ask_for_reboot(context, host, progress.targets)
    except RefilledError as error:
        return drain_again(context, progress, error)
    except RestagedError:
        # The repeated step approves the new version.
        return _repeat_for_restaged(progress)
    is_in_doubt = delivery is RebootDelivery.IN_DOUBT
    return replace(progress, in_doubt=is_in_doubt).move(Edge.REBOOT_REQUESTED)


def _prove_boot(host: SshHost, context: NodeContext, progress: Progress) -> Progress:
    """The next phase is usually BOOTED.

    If the request is repeated, it can also be DRAINING, because pods have come, or again REBOOTING,
    for another staged update.
    """
    try:
        with undoing_failed_rollback(context, host):
            boot = await_boot_or_rescue(context, host, progress.targets, in_doubt=progress.in_doubt)
    except RefilledError as error:
        return drain_again(context, progress, error)
    except RestagedError:
        approved = _approve_if_restaged(context, host, progress)
        return _repeat_for_restaged(approved or progress)
    booted = replace(progress, boot=boot)
    retry_if_node_lost(context, booted, Phase.BOOTED, lambda: mark_phase(context, Phase.BOOTED))
    return booted.move(Edge.BOOTED)


def drain_again(context: NodeContext, progress: Progress, refilled: RefilledError) -> Progress:
    if progress.repeated_drains >= _MOST_REPEATED_DRAINS:
        raise refilled
    context.report_step(Phase.DRAINING, f"draining again: {refilled.message}")
    _mark_draining(context)
    # The reboot is requested anew, so no request is in doubt.
    repeated = replace(progress, repeated_drains=progress.repeated_drains + 1, in_doubt=False)
    return repeated.move(Edge.REFILLED)


def _prove_ready(host: SshHost, context: NodeContext, progress: Progress) -> Progress:
    def await_and_mark_ready() -> None:
        await_ready(context, progress.boot, context.policy.ready_timeout)
        mark_phase(context, Phase.READY)

    # In a rollback, the boot may be of the version to leave.
    with undoing_failed_rollback(context, host, progress.boot):
        retry_if_node_lost(context, progress, Phase.BOOTED, await_and_mark_ready)
    return progress.move(Edge.READY)


def _finish(host: SshHost, context: NodeContext, progress: Progress) -> Progress:
    def prove_and_uncordon() -> Progress:
        prove_reboot_worked(context, host, progress)
        run_checks_after_reboot(context, progress.boot)
        return return_proven_node(context, progress)

    with undoing_failed_rollback(context, host, progress.boot):
        return retry_if_node_lost(context, progress, Phase.READY, prove_and_uncordon)


def run_checks_after_reboot(context: NodeContext, boot: BootFacts) -> None:
    run_playbook(context, boot)
    await_checks(context, context.policy.gates.hooks.after, AFTER, Phase.READY)


def return_proven_node(context: NodeContext, progress: Progress) -> Progress:
    version = progress.version
    await_own_pods(context, context.policy.settle_timeout)
    # The host may have rebooted again during its checks.
    await_ready(context, progress.boot, context.policy.ready_timeout)
    node_before = return_node(context, Outcome.SUCCEEDED, version)
    ineffective_reboots = count_ineffective_reboots(context, node_before, version)
    note = _note_on_version(context, progress, ineffective_reboots)
    proven = replace(progress, ineffective_reboots=ineffective_reboots, note=note)
    return proven.move(Edge.PROVEN)


def _note_on_version(context: NodeContext, progress: Progress, ineffective_reboots: int) -> str:
    same_version = f"is still running {context.planned.running_version}"
    if ineffective_reboots >= MOST_INEFFECTIVE_REBOOTS:
        release = f"rollout release --node {context.name}"
        return (
            f"{same_version} after {ineffective_reboots} reboots in a row: it will not be rebooted"
            f" again for some time ({release})"
        )
    # With targets, something else may have required a single reboot.
    is_update_expected = not progress.targets
    if ineffective_reboots and is_update_expected:
        return f"{same_version}: the update did not take effect, or none was staged"
    return ""
