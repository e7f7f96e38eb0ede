"""`rollout resume`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from rollout.cli.options.cluster import ClusterOptions
from rollout.cli.options.gates import AlertAddressOptions, LocalGateOptions, refuse_another_address
from rollout.cli.options.general import GeneralOptions
from rollout.cli.options.run import LeftoverOptions, ProcessOptions, YesOption

if TYPE_CHECKING:
    from rollout.cli.stages.execute import Run
    from rollout.cli.stages.gather import Connections
    from rollout.execution.gates.ports import GatePorts
    from rollout.execution.record.unfinished import Unfinished
    from rollout.execution.rollout.continuation import Continuation


def resume(
    call: typer.Context,
    cluster: ClusterOptions,
    process: ProcessOptions,
    local: LocalGateOptions,
    alerts: AlertAddressOptions,
    leftover: LeftoverOptions,
    general: GeneralOptions,
    yes: YesOption = False,
) -> None:
    """Go on with an interrupted rollout, from any machine.

    What it needs stands on the cluster: nodes that were begun are taken on from where they stand, by the rules of the
    interrupted rollout; those that were not are planned anew. Where those rules are not known, because its record is
    gone or not understood, nothing is resumed (exit 6), but with --finish-begun.

    \b
    Examples:
      rollout resume
      rollout resume --yes --retry-failed
    """
    from rollout.cli import consent, wiring
    from rollout.cli.stages import execute, gather, refusals
    from rollout.execution.rollout.continuation import is_nothing_left, rules_of
    from rollout.model.policy import Selection

    playbooks = wiring.node_playbooks(process.playbooks, process.ssh)
    connections = gather.connect(cluster, Selection(), process.ssh)
    unfinished = gather.find_unfinished(connections, process.lease.lease_namespace)
    retry, finish = leftover.retry_failed, leftover.finish_begun
    if unfinished is None or is_nothing_left(unfinished, retry_failed=retry, finish_begun=finish):
        _tell_nothing(unfinished, as_json=general.as_json)
        return
    refusals.refuse_unknown_rules(unfinished, finish_begun=finish)
    rules = rules_of(unfinished)
    if unfinished.record.plan is not None:
        process.reboot.refuse_another(rules)
        refuse_another_address(call, alerts.prometheus_url, rules)
    gates = wiring.gates(rules.gates.alerts, local, alerts.prometheus_url, playbooks)
    consent.refuse_if_nobody_can_be_asked(given=yes, as_json=general.as_json)
    run = _rest(unfinished, connections, process, gates, leftover, quiet=general.as_json, width=general.width)
    if not yes:
        where = consent.place(connections.api.server, wiring.context_of(cluster))
        consent.ask(f"Resume this rollout of {where}")
    code = execute.execute(run, as_json=general.as_json, width=general.width)
    _tell_standing_record(unfinished)
    raise typer.Exit(code)


def _rest(
    unfinished: "Unfinished",
    connections: "Connections",
    process: ProcessOptions,
    gates: "GatePorts",
    leftover: LeftoverOptions,
    *,
    quiet: bool,
    width: int | None,
) -> "Run":
    """What is left to run, after showing it; refused where something stands in its way."""
    from rollout.cli import wiring
    from rollout.cli.stages import execute, gather, plan, refusals
    from rollout.cli.stages.journal import past_runs
    from rollout.execution.rollout.continuation import Situation, continuation, pending_nodes, rules_of
    from rollout.planning.continuation import without_accepted_blockers

    rules, retry = rules_of(unfinished), leftover.retry_failed
    snapshot = gather.read_cluster(connections)
    refusals.refuse_without_rights(connections, rules.drain, process.lease.lease_namespace)
    pending = pending_nodes(unfinished, retry_failed=retry)
    targets = gather.ask_named(snapshot.nodes, pending, connections, process.ssh)
    now, past = wiring.system_clock().now(), past_runs(snapshot.identity)
    situation = Situation(snapshot, targets.hosts, targets.observations, now, past)
    remainder = continuation(unfinished, situation, retry_failed=retry, skip_blocked=leftover.skip_blocked)
    _show(unfinished, remainder, plan.zones(snapshot), quiet=quiet, width=width)
    conceded = plan.warn_of_relaxed_rules(rules, "the interrupted rollout has")
    if leftover.require_all:
        refusals.refuse_left_behind(remainder.plan, remainder.inherited)
    refusals.refuse_blocked(
        without_accepted_blockers(remainder.plan, unfinished.record.plan), only_rivals=leftover.ignore_blockers
    )
    return execute.Run(
        plan=remainder.plan,
        targets=targets,
        connections=connections,
        options=execute.run_options(
            remainder.selected,
            process.ssh,
            process.lease,
            process.lock,
            process.reboot.command,
            execute.pods_on(remainder.plan, snapshot.pods),
        ),
        gates=gates,
        stop=process.stop.stop,
        journal=process.journal.journal,
        inherited=remainder.inherited,
        conceded=conceded,
    )


def _show(
    unfinished: "Unfinished",
    remainder: "Continuation",
    zones: Mapping[str, str],
    *,
    quiet: bool,
    width: int | None,
) -> None:
    """What becomes of each node; where standard output is for programs, only what is not as it should be."""
    from rollout.cli.terminal import say, show
    from rollout.report.tables import plan_text
    from rollout.report.unfinished import older_failures, resume_text, unknown_rules

    if quiet:
        for line in (*unknown_rules(unfinished), *older_failures(unfinished, remainder.retried)):
            say(f"warning: {line}")
        return
    show(resume_text(unfinished, remainder.retried, remainder.inherited.failures, remainder.inherited.stranded))
    show("\n" + plan_text(remainder.plan, zones=zones, width=width))


def _tell_standing_record(unfinished: "Unfinished") -> None:
    from rollout.cli.terminal import say
    from rollout.report.unfinished import RECORD_STAYS

    if unfinished.is_garbled:
        say(RECORD_STAYS)


def _tell_nothing(unfinished: "Unfinished | None", *, as_json: bool) -> None:
    from rollout.cli.stages.execute import tell_nothing
    from rollout.cli.terminal import show

    if as_json:
        tell_nothing()
    else:
        show(_nothing(unfinished))


def _nothing(unfinished: "Unfinished | None") -> str:
    from rollout.report.unfinished import heading

    if unfinished is None:
        return "Nothing to resume: this cluster has no record of a rollout."
    if unfinished.is_only_taints:
        return f"Nothing to resume: {heading(unfinished)}. Remove it: rollout abort."
    if unfinished.is_garbled:
        return f"Nothing to finish: {heading(unfinished)}. Its record stays: rollout abort removes it."
    return f"Nothing to resume: {heading(unfinished)}. --retry-failed tries the failed ones again."
