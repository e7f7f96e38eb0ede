from typing import TYPE_CHECKING

from msgspec.structs import replace

from rollout.cli import wiring
from rollout.cli.settings.existing_plan import (
    settings_without_effect,
    timeout_notes,
    with_current_timeouts,
)
from rollout.cli.settings.reading import PLANNED, TIMEOUTS, CommandSettings
from rollout.cli.settings.rules import require_settings_for, selection_of
from rollout.cli.settings.schema import Allow, Skip
from rollout.cli.stages import refusals, screens
from rollout.cli.stages.cluster import Connections, read_cluster
from rollout.cli.stages.hosts import ask_hosts_of
from rollout.cli.stages.lock import read_lock
from rollout.cli.stages.prepare import PreparedRun, inputs_of
from rollout.cli.stages.rollout_spec import Interrupted, RolloutSpec
from rollout.cli.terminal import say, show, show_lines, warn
from rollout.errors import BlockedError, UsageError
from rollout.execution.record.memory import require_readable_memory
from rollout.execution.record.unfinished import Unfinished
from rollout.execution.rollout.continuation import pending_nodes, plan_continuation, rules_of
from rollout.model.cluster import ClusterSnapshot
from rollout.model.text import capitalize
from rollout.planning.eligibility.evidence import ProvenVersions
from rollout.planning.plan.joining import without_accepted_blockers
from rollout.ports import ClusterApi
from rollout.report.unfinished import commands_clause, resume_preview, unfinished_heading

if TYPE_CHECKING:
    from rollout.report.metrics import Metrics


# These and `TIMEOUTS` may differ from the interrupted rollout's rules.
_CHANGEABLE_SETTINGS = ("nodes.allow", "nodes.skip")
_ACCEPTED_BY_ALLOW = (Allow.BLOCKED, Allow.HELD, Allow.UNHEALTHY)


def nothing_to_resume_text(unfinished: Unfinished | None) -> str:
    if unfinished is None:
        return "Nothing to resume: this cluster has no record of a rollout."
    heading = unfinished_heading(unfinished)
    return f"Nothing to resume: {heading}. {capitalize(commands_clause(unfinished))}."


def refuse_without_record(unfinished: Unfinished) -> None:
    """Raise `BlockedError` if the record, which has the plan, cannot be used."""
    if unfinished.record.problem:
        raise BlockedError(
            f"{unfinished_heading(unfinished)}: its record is missing or unreadable, so its"
            " settings are unknown and it cannot be resumed",
            hint="rollout abort returns the nodes in flight to service, and removes an unreadable"
            " record.",
        )


def with_given_timeouts(unfinished: Unfinished, settings: CommandSettings) -> Unfinished:
    """Apply the time-outs set now; print which settings have no effect.

    Raises `UsageError` for flags that contradict the rollout's rules.
    """
    _refuse_other_rules(unfinished, settings)
    plan = unfinished.record.plan
    if plan is None:
        return unfinished
    policy = with_current_timeouts(plan.policy, settings)
    changes = timeout_notes(plan.policy, policy)
    without_effect = settings_without_effect(
        settings, policy, plan.selection, changeable=_CHANGEABLE_SETTINGS
    )
    for sentence in (*changes, *without_effect):
        say(f"note: {sentence}")
    record = replace(unfinished.record, plan=replace(plan, policy=policy))
    return replace(unfinished, record=record)


def _refuse_other_rules(unfinished: Unfinished, settings: CommandSettings) -> None:
    if "nodes.allow" in settings.typed:
        for override in settings.nodes.allow:
            if override not in _ACCEPTED_BY_ALLOW:
                raise UsageError(
                    f"--allow {override}: the interrupted rollout has its own settings",
                    hint=f"resume accepts only {', '.join(_ACCEPTED_BY_ALLOW)}.",
                )
    settings.refuse_typed_settings(
        set(PLANNED).difference(_CHANGEABLE_SETTINGS, TIMEOUTS),
        why="cannot be changed now: the interrupted rollout has its own settings",
        hint="Only timeouts can be changed. "
        "For other settings, run rollout abort, then rollout apply.",
    )
    require_settings_for(settings, rules_of(unfinished))


def resumption_spec(settings: CommandSettings, unfinished: Unfinished) -> RolloutSpec:
    return RolloutSpec(settings, selection_of(settings), rules_of(unfinished), Interrupted())


def prepare_resumption(
    connections: Connections,
    spec: RolloutSpec,
    unfinished: Unfinished,
    *,
    metrics: "Metrics | None",
    retry_failed: bool = False,
    proven: ProvenVersions | None = None,
) -> PreparedRun:
    """Plan the rest of a rollout, and show it.

    If the rest is blocked, only started nodes are finished; without any, raises `BlockedError`.
    """
    settings = spec.settings
    snapshot = _read_cluster_to_resume(connections.api, spec, unfinished)
    pending_names = pending_nodes(unfinished, retry_failed=retry_failed)
    targets = ask_hosts_of(pending_names, connections, spec, snapshot.nodes)
    # A rollback does not ask the hosts for updates.
    if metrics and not spec.policy.rollback:
        metrics.observe_hosts(targets.observations, keep_others=True)
    inputs = plan_continuation(
        unfinished,
        inputs_of(spec, snapshot, targets, proven),
        targets.hosts,
        retry_failed=retry_failed,
        skip_blocked=Skip.BLOCKED in (settings.nodes.skip or ()),
        include_held=Allow.HELD in settings.nodes.allow,
    )
    run = PreparedRun(spec, inputs, targets)
    _show_remaining_plan(connections.api, run, unfinished, snapshot, retry_failed=retry_failed)
    # Allowed blockers stay allowed.
    plan = without_accepted_blockers(run.plan, unfinished.record.plan)
    if not unfinished.in_flight:
        refusals.refuse_blocked(plan, settings.nodes.allow)
        return run
    why_rest_is_blocked = refusals.warn_of_blocked_rest(plan, settings.nodes.allow)
    inherited = replace(inputs.inherited, why_none_starts=why_rest_is_blocked)
    return replace(run, inputs=replace(inputs, inherited=inherited))


def _read_cluster_to_resume(
    api: ClusterApi, spec: RolloutSpec, unfinished: Unfinished
) -> ClusterSnapshot:
    # They are finished even if the memory is unreadable.
    has_nodes_in_flight = bool(unfinished.in_flight)
    snapshot = read_cluster(
        api,
        spec.namespace,
        warns=has_nodes_in_flight,
        with_jobs=spec.policy.drain.completion.is_used,
    )
    if not has_nodes_in_flight:
        require_readable_memory(snapshot.memory)
    refusals.refuse_other_cluster(unfinished, snapshot.identity)
    refusals.refuse_without_rights(
        api,
        spec.namespace,
        spec.policy,
        unattended=spec.unattended,
        has_nodes_in_flight=has_nodes_in_flight,
    )
    return snapshot


def _show_remaining_plan(
    api: ClusterApi,
    run: PreparedRun,
    unfinished: Unfinished,
    snapshot: ClusterSnapshot,
    *,
    retry_failed: bool,
) -> None:
    spec = run.spec
    warn(*screens.relaxed_notes(spec))
    if spec.settings.output.as_json:
        # As text, the plan lists held versions itself.
        warn(*screens.held_notes(run.plan))
        return
    lock = read_lock(api, spec.namespace)
    planned_names = {node.name for node in run.plan.nodes}
    inherited = run.inputs.inherited
    show_lines(resume_preview(unfinished, lock, planned_names, inherited, retry=retry_failed))
    full_command = f"rollout resume{' --retry-failed' if retry_failed else ''} -o wide"
    place = wiring.cluster_place(spec.settings, api)
    show("\n" + screens.brief_plan_text(run, snapshot, place, full_command))
