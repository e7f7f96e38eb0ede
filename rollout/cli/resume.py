"""`rollout resume`."""

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from rollout.cli.alert_options import AlertAddressOptions, refuse_another_address
from rollout.cli.apply import YesOption
from rollout.cli.gate_options import LocalGateOptions
from rollout.cli.options import ClusterOptions, GeneralOptions, LeaseOptions, SshOptions
from rollout.cli.playbook_options import PlaybookOptions
from rollout.cli.reboot_options import RebootOptions
from rollout.cli.run_options import JournalOptions, LeftoverOptions, LockOptions, StopOptions

if TYPE_CHECKING:
    from rollout.execution.record.unfinished import Unfinished


def resume(  # noqa: PLR0917 - typer's parameters; each is a group of options
    call: typer.Context,
    cluster: ClusterOptions,
    ssh: SshOptions,
    playbooks: PlaybookOptions,
    reboot: RebootOptions,
    lease: LeaseOptions,
    lock: LockOptions,
    stop: StopOptions,
    journal: JournalOptions,
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
    from rollout.cli.continuing import left_of, nothing_left, refuse_unknown_rules
    from rollout.cli.gathering import connect
    from rollout.cli.running import run, tell_nothing
    from rollout.cli.terminal import say, show
    from rollout.cli.unfinished import find_unfinished
    from rollout.model.policy import Selection
    from rollout.report.unfinished import RECORD_STAYS

    around = wiring.node_playbooks(playbooks, ssh)
    connections = connect(cluster, Selection(), ssh)
    found = find_unfinished(connections, lease.lease_namespace)
    if found is None or nothing_left(found, leftover):
        if general.as_json:
            tell_nothing()
        else:
            show(_nothing(found))
        return
    refuse_unknown_rules(found, leftover)
    if found.record.plan is not None:
        policy = found.record.plan.policy
        reboot.refuse_another(policy)
        refuse_another_address(call, alerts.prometheus_url, policy)
        wiring.gates(policy.gates.alerts, local, alerts.prometheus_url)
    consent.refuse_if_nobody_can_be_asked(given=yes, as_json=general.as_json)
    this = left_of(found, connections, ssh, lease, lock, stop.stop, leftover, quiet=general.as_json)
    if not yes:
        consent.ask("Only 'yes' is taken for consent. Go on with it? ")
    options = replace(this.options, reboot_command=reboot.command)
    this = replace(this, options=options, journal=journal.journal, local=local, playbooks=around)
    this = replace(this, prometheus_url=alerts.prometheus_url)
    code = run(this, as_json=general.as_json)
    if found.is_garbled:
        say(RECORD_STAYS)
    raise typer.Exit(code)


def _nothing(found: "Unfinished | None") -> str:
    from rollout.report.unfinished import heading

    if found is None:
        return "Nothing to resume: no rollout stands on this cluster."
    if found.is_garbled:
        return f"Nothing to finish: {heading(found)}. Its record stays: rollout abort takes it away."
    return f"Nothing to resume: {heading(found)}. --retry-failed takes the failed ones again."
