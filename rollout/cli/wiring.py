"""Makes the adapters. Each is imported when it is made, so that `--help` loads no client."""

import getpass
import os
import socket
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollout.adapters import cel
from rollout.adapters.ansible.settings import AnsibleSettings
from rollout.adapters.clock import SystemClock
from rollout.adapters.operator_command import OperatorCommand, split_command
from rollout.adapters.prometheus import TOKEN_VARIABLE, PrometheusAlerts, token_for
from rollout.adapters.silences import NodeSilences
from rollout.adapters.ssh.logged_shell import logged_shell
from rollout.cli.consent import TerminalConfirmation
from rollout.cli.log import stage
from rollout.cli.settings.schema import (
    AlertsSettings,
    Executor,
    RebootSettings,
    Settings,
    SshSettings,
)
from rollout.cli.terminal import say, show_progress
from rollout.errors import KubeconfigError, UsageError
from rollout.execution.base.deadline import Deadline
from rollout.execution.gates import GatePorts
from rollout.execution.node.context import NodePlaybooks, Occasion, Rescue
from rollout.gather.inventory import Inventory, SshDefaults
from rollout.model.gates import AlertPolicy
from rollout.model.host import Host
from rollout.ports import Clock, ClusterApi, HostExecutor

if TYPE_CHECKING:
    from rollout.adapters.kube.kubeconfig import Login

HURRIED_VARIABLE = "NODE_ROLLOUT_TEST_HURRIED"


def cluster_api(settings: Settings) -> ClusterApi:
    from rollout.adapters.kube.api import connect

    with stage("connect") as note:
        api = connect(settings.cluster.kubeconfig, settings.cluster.context or None)
        note(api.server)
    return api


def find_login(settings: Settings) -> "Login | None":
    """Return the API server and context of the kubeconfig; None without one, as in a pod."""
    from rollout.adapters.kube import kubeconfig

    try:
        return kubeconfig.find_login(settings.cluster.kubeconfig, settings.cluster.context or None)
    except KubeconfigError:
        return None


def cluster_place(settings: Settings, api: ClusterApi) -> str:
    name = settings.cluster.name
    if not name:
        login = find_login(settings)
        name = login.context if login else ""
    return f"{name} ({api.server})" if name else api.server


def host_shell(options: SshSettings) -> HostExecutor:
    if options.executor is Executor.ANSIBLE:
        from rollout.adapters.ansible.executor import AnsibleExecutor

        return logged_shell(AnsibleExecutor(_ansible_settings(options)))
    from rollout.adapters.ssh.keys import PASSPHRASE_VARIABLE
    from rollout.adapters.ssh.shell import ParamikoShell

    shell = ParamikoShell(
        known_hosts=options.known_hosts,
        host_key_checking=options.host_key_checking,
        key_file=options.key,
        passphrase=os.environ.get(PASSPHRASE_VARIABLE, ""),
    )
    return logged_shell(shell)


def _ansible_settings(options: SshSettings) -> AnsibleSettings:
    return AnsibleSettings(
        inventory=options.inventory,
        user=options.user or None,
        port=options.port,
        key_file=options.key,
        known_hosts=options.known_hosts,
        ssh_config=options.config,
        host_key_checking=options.host_key_checking,
    )


def read_ansible_inventory(options: SshSettings, defaults: SshDefaults) -> Inventory | None:
    """Return None without an inventory in the settings."""
    if options.inventory is None:
        return None
    from rollout.adapters.ansible.inventory import read_inventory

    by_ansible = options.executor is Executor.ANSIBLE
    with show_progress("asking ansible-inventory for the hosts"):
        return read_inventory(
            options.inventory, _ansible_settings(options), defaults, by_ansible=by_ansible
        )


def gate_ports(
    settings: Settings, alerts: AlertPolicy, deadline: Deadline | None = None
) -> GatePorts:
    """Return the gates of a run. Raises `UsageError` for settings that have no effect.

    `alerts` are the plan's; only the Prometheus of the settings gets the token. No node starts that
    cannot finish before the `deadline`.
    """
    alert_settings = settings.alerts
    if alert_settings.silence and not alert_settings.alertmanager_url:
        why = "alerts.silence has no effect without alerts.alertmanager-url"
        raise UsageError(why, hint="Give its address.")
    read_alerts = None
    if alerts.url:
        read_alerts = PrometheusAlerts(
            alerts.url,
            matchers=alerts.matchers,
            token=token_for(
                alerts.url, alert_settings.prometheus_url, os.environ.get(TOKEN_VARIABLE, "")
            ),
            alertmanager=alert_settings.alertmanager_url,
        ).read_active
    command = None
    if settings.gates.command:
        words = split_command(settings.gates.command)
        command = OperatorCommand(words, "gate command", "gates.timeout").run_and_explain
    return GatePorts(
        command=command,
        confirmation=TerminalConfirmation() if settings.gates.interactive else None,
        alerts=read_alerts,
        evaluate=cel.evaluate,
        playbooks=_node_playbooks(settings),
        rescue=_rescue(settings.reboot),
        deadline=deadline,
    )


def silences(settings: AlertsSettings, hosts: Mapping[str, Host]) -> NodeSilences | None:
    if not settings.silence:
        return None
    addresses = {name: host.address for name, host in hosts.items()}
    return NodeSilences(
        settings.alertmanager_url,
        label=settings.silence,
        addresses=addresses,
        clock=system_clock(),
        say=say,
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

    return AnsiblePlaybooks(_ansible_settings(settings.ssh), files)


def _rescue(options: RebootSettings) -> Rescue | None:
    if not options.rescue:
        return None
    words = split_command(options.rescue)
    command = OperatorCommand(words, "rescue command", "reboot.rescue-timeout")
    return partial(command.run, seconds=options.rescue_timeout)


def exposition(*collectors: Any) -> Callable[[], bytes]:
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)


def system_clock() -> Clock:
    """Return the real clock. Tests shorten its waits with a variable that is no setting."""
    return SystemClock(float(os.environ.get(HURRIED_VARIABLE) or 1))


def now() -> datetime:
    return system_clock().now()


def lease_holder() -> str:
    """Return `user@machine/pid`."""
    return f"{operator()}/{os.getpid()}"


def operator() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"
