import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rollout.adapters import cel
from rollout.adapters.operator_command import OperatorCommand, split_command
from rollout.cli.consent import TerminalConfirmation
from rollout.cli.settings.schema import AlertsSettings, RebootSettings, Settings
from rollout.cli.terminal import say
from rollout.cli.wiring import ansible_settings, system_clock
from rollout.errors import UsageError
from rollout.execution.base.deadline import Deadline
from rollout.execution.base.gate_ports import (
    AlertSource,
    GatePorts,
    NodePlaybooks,
    Occasion,
    Rescue,
)
from rollout.model.gates import AlertPolicy
from rollout.model.host import Host

if TYPE_CHECKING:
    from rollout.adapters.silences import NodeSilences


def gate_ports(
    settings: Settings, alerts: AlertPolicy, deadline: Deadline | None = None
) -> GatePorts:
    """Raise `UsageError` for settings that have no effect.

    `alerts` are the plan's. No node starts that cannot finish before the `deadline`.
    """
    alert_settings = settings.alerts
    if alert_settings.silence and not alert_settings.alertmanager_url:
        why = "alerts.silence has no effect without alerts.alertmanager-url"
        raise UsageError(why, hint="Specify its address.")
    command = None
    if settings.gates.command:
        words = split_command(settings.gates.command)
        command = OperatorCommand(words, "gate command", "gates.timeout").run_and_explain
    return GatePorts(
        command=command,
        confirmation=TerminalConfirmation() if settings.gates.interactive else None,
        alerts=_alert_source(alerts, alert_settings) if alerts.url else None,
        evaluate=cel.evaluate,
        playbooks=_node_playbooks(settings),
        rescue=_rescue(settings.reboot),
        deadline=deadline,
    )


def _alert_source(alerts: AlertPolicy, settings: AlertsSettings) -> AlertSource:
    from rollout.adapters.prometheus import TOKEN_VARIABLE, PrometheusAlerts, token_for

    # Empty if the plan names another Prometheus, which must not get the token.
    token = token_for(alerts.url, settings.prometheus_url, os.environ.get(TOKEN_VARIABLE, ""))
    return PrometheusAlerts(
        alerts.url,
        matchers=alerts.matchers,
        token=token,
        alertmanager_url=settings.alertmanager_url,
    ).read_active


def silences(settings: AlertsSettings, hosts: Mapping[str, Host]) -> "NodeSilences | None":
    if not settings.silence:
        return None
    from rollout.adapters.silences import NodeSilences

    addresses = {name: host.address for name, host in hosts.items()}
    return NodeSilences(
        settings.alertmanager_url,
        label=settings.silence,
        addresses=addresses,
        clock=system_clock(),
        warn=say,
    )


def _node_playbooks(settings: Settings) -> NodePlaybooks | None:
    files: dict[Occasion, Path] = {}
    if settings.reboot.pre_playbook is not None:
        files[Occasion.PRE_REBOOT] = settings.reboot.pre_playbook
    if settings.reboot.post_playbook is not None:
        files[Occasion.POST_REBOOT] = settings.reboot.post_playbook
    if not files:
        return None
    from rollout.adapters.ansible.playbook_run import AnsiblePlaybooks

    return AnsiblePlaybooks(ansible_settings(settings.ssh), files)


def _rescue(options: RebootSettings) -> Rescue | None:
    if not options.rescue:
        return None
    words = split_command(options.rescue)
    command = OperatorCommand(words, "rescue command", "reboot.rescue-timeout")
    return partial(command.run, seconds=options.rescue_timeout)
