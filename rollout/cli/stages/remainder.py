"""What an interrupted rollout has left, from its record to what is run; refused where something stands in its way."""

from rollout.cli import wiring
from rollout.cli.settings.rules import probe_of
from rollout.cli.settings.schema import Allow, Skip
from rollout.cli.stages import execute, gather, plan, refusals
from rollout.cli.stages.execute import Run, RunSettings
from rollout.cli.stages.gather import Connections, Gathered
from rollout.cli.stages.journal import past_runs
from rollout.cli.stages.lock import glance_at_lock
from rollout.cli.terminal import say, show, show_lines
from rollout.execution.record.unfinished import Unfinished
from rollout.execution.rollout.continuation import Continuation, Situation, continuation, pending_nodes, rules_of
from rollout.planning.plan.continuation import without_accepted_blockers
from rollout.report.unfinished import older_failures, resume_text, unknown_rules


def planned_rest(
    unfinished: Unfinished, connections: Connections, conditions: RunSettings, *, retry: bool = False
) -> Run:
    """What is left to run, after showing it."""
    settings, rules, nodes = conditions.settings, rules_of(unfinished), conditions.settings.nodes
    snapshot = gather.read_cluster(connections, settings.lock.namespace)
    refusals.refuse_another_cluster(unfinished.record.plan, snapshot.identity)
    # what is begun is finished in any case
    begins_only = conditions.operating and not unfinished.begun
    refusals.refuse_without_rights(connections, rules.drain, settings.lock.namespace, unattended=begins_only)
    pending = pending_nodes(unfinished, retry_failed=retry)
    probe = probe_of(settings, rules.detect)
    targets = gather.ask_named(snapshot.nodes, pending, connections, settings.ssh, probe)
    now, past = wiring.system_clock().now(), past_runs(snapshot.identity)
    seen, unattended = targets.observations, conditions.operating
    situation = Situation(snapshot, targets.hosts, seen, now, past, targets.own_node, unattended, conditions.proven)
    skip, held = Skip.BLOCKED in (nodes.skip or ()), Allow.HELD in nodes.allow
    remainder = continuation(unfinished, situation, retry_failed=retry, skip_blocked=skip, include_held=held)
    lock = glance_at_lock(connections.api, settings.lock.namespace)
    if conditions.as_json:
        _warn(unfinished, remainder)
    else:
        planned = {node.name for node in remainder.plan.nodes}
        show_lines(resume_text(unfinished, lock, planned, remainder.inherited, retry=retry))
        show("\n" + plan.shown(remainder.plan, snapshot, settings.cluster, conditions.width))
    plan.warn_of_held(remainder.plan)
    conceded = plan.warn_of_relaxed_rules(rules, "the interrupted rollout has")
    if nodes.require_all:
        refusals.refuse_left_behind(remainder.plan, remainder.inherited)
    refusals.refuse_blocked(
        without_accepted_blockers(remainder.plan, unfinished.record.plan), only_rivals=Allow.BLOCKED in nodes.allow
    )
    gathered = Gathered(connections, snapshot, targets)
    return execute.run_of(conditions, gathered, remainder.plan, remainder.selected, conceded, remainder.inherited)


def _warn(unfinished: Unfinished, remainder: Continuation) -> None:
    """Where standard output is for programs: what is not as it should be."""
    for line in (*unknown_rules(unfinished), *older_failures(unfinished, remainder.retried)):
        say(f"warning: {line}")
