"""`rollout resume`."""

from typing import TYPE_CHECKING

import typer

from rollout.cli.options.cluster import ClusterOptions
from rollout.cli.options.gates import AlertAddressOptions, LocalGateOptions, refuse_another_address
from rollout.cli.options.general import GeneralOptions
from rollout.cli.options.run import LeftoverOptions, ProcessOptions, YesOption

if TYPE_CHECKING:
    from rollout.cli.stages.execute import Run
    from rollout.execution.record.unfinished import Unfinished


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
    from rollout.cli.stages import execute, gather, refusals, remainder
    from rollout.cli.stages.lock import refuse_beside_living
    from rollout.cli.stages.metrics import metered
    from rollout.execution.rollout.continuation import is_nothing_left, rules_of
    from rollout.model.policy import Selection

    playbooks = wiring.node_playbooks(process.playbooks, process.ssh)
    connections = gather.connect(cluster, Selection(), process.ssh)
    watch = refuse_beside_living(connections.api, process.lease.lease_namespace, process.lock)
    unfinished = gather.find_unfinished(connections.api, process.lease.lease_namespace)
    retry, finish = leftover.retry_failed, leftover.finish_begun
    if unfinished is None or is_nothing_left(unfinished, retry_failed=retry, finish_begun=finish):
        _tell_nothing(unfinished, as_json=general.as_json)
        return
    refusals.refuse_unknown_rules(unfinished, finish_begun=finish)
    _refuse_others(call, unfinished, process, alerts)
    gates = wiring.gates(rules_of(unfinished).gates.alerts, local, alerts.prometheus_url, playbooks)
    consent.refuse_if_nobody_can_be_asked(given=yes, as_json=general.as_json)
    api, name, namespace = connections.api, process.naming.cluster_name, process.lease.lease_namespace
    with metered(process.metrics, name, api.server) as meter, meter.measured_pass(api, namespace):
        settings = execute.RunSettings(process, gates, general.as_json, general.width, meter.observers, watch=watch)
        run = remainder.planned_rest(unfinished, connections, settings, leftover)
        meter.observe_hosts(run.targets.observations, among_others=True)
        if not yes:
            _ask(run, cluster)
        code = execute.execute(run)
        _tell_standing_record(unfinished)
        raise typer.Exit(code)


def _ask(run: "Run", cluster: ClusterOptions) -> None:
    from rollout.cli import consent, wiring
    from rollout.model.text import counted

    place = consent.place(run.connections.api.server, wiring.context_of(cluster))
    consent.ask(f"Resume this rollout on {counted(run.plan.summary.nodes, 'node')} of {place}")


def _refuse_others(
    call: typer.Context, unfinished: "Unfinished", process: ProcessOptions, alerts: AlertAddressOptions
) -> None:
    """`UsageError` for a rule given on the command line that the interrupted rollout has otherwise."""
    from rollout.execution.rollout.continuation import rules_of

    if unfinished.record.plan is not None:
        process.reboot.refuse_another(rules_of(unfinished))
        process.detect.refuse_another(rules_of(unfinished))
        refuse_another_address(call, alerts.prometheus_url, rules_of(unfinished))


def _tell_standing_record(unfinished: "Unfinished") -> None:
    from rollout.cli.terminal import say
    from rollout.report.unfinished import RECORD_STAYS

    if unfinished.is_garbled:
        say(RECORD_STAYS)


def _tell_nothing(unfinished: "Unfinished | None", *, as_json: bool) -> None:
    from rollout.cli.stages.execute import tell_nothing
    from rollout.cli.terminal import show_lines

    if as_json:
        tell_nothing()
    else:
        show_lines(_nothing(unfinished))


def _nothing(unfinished: "Unfinished | None") -> str:
    from rollout.report.unfinished import heading

    if unfinished is None:
        return "Nothing to resume: this cluster has no record of a rollout."
    if unfinished.is_only_taints:
        return f"Nothing to resume: {heading(unfinished)}. Remove it: rollout abort."
    if unfinished.is_garbled:
        return f"Nothing to finish: {heading(unfinished)}. Its record stays: rollout abort removes it."
    return f"Nothing to resume: {heading(unfinished)}. --retry-failed tries the failed ones again."
