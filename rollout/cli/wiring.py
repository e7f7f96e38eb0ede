"""The sole constructor of adapters. Each is imported when it is made: `--help` loads no client."""

import getpass
import os
import socket
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from rollout.adapters.ansible.settings import AnsibleSettings
from rollout.adapters.clock import SystemClock
from rollout.adapters.gate_command import ask_command, split_command
from rollout.adapters.prometheus import TOKEN_VARIABLE, PrometheusAlerts, token_for
from rollout.adapters.silences import NodeSilences
from rollout.adapters.ssh.logged_shell import logged_shell
from rollout.cli.consent import TerminalConfirmation
from rollout.cli.log import stage
from rollout.cli.settings.schema import AlertsSettings, Executor, Settings, SshSettings
from rollout.cli.terminal import say, show_progress
from rollout.errors import KubeconfigError, UsageError
from rollout.execution.base.deadline import Deadline
from rollout.execution.gates import GatePorts
from rollout.execution.node.context import NodePlaybooks, Occasion
from rollout.gather.inventory import Inventory, SshDefaults
from rollout.model.gates import AlertPolicy
from rollout.model.host import Host
from rollout.ports import Clock, ClusterApi, HostExecutor

HURRIED_VARIABLE = "NODE_ROLLOUT_TEST_HURRIED"


def cluster_api(settings: Settings) -> ClusterApi:
    """Return the API server of the chosen kubeconfig and context."""
    from rollout.adapters.kube.api import connect

    with stage("connect") as note:
        api = connect(settings.cluster.kubeconfig, settings.cluster.context or None)
        note(api.server)
    return api


def context_of(settings: Settings) -> str:
    """Return the context of the kubeconfig that is used; empty where there is no kubeconfig, as in a pod."""
    from rollout.adapters.kube.kubeconfig import find_login

    try:
        return find_login(settings.cluster.kubeconfig, settings.cluster.context or None).context
    except KubeconfigError:
        return ""


def cluster_place(settings: Settings, api: ClusterApi) -> str:
    """Return the cluster's name, if it has one, with the address of its API server."""
    name = settings.cluster.name or context_of(settings)
    return f"{name} ({api.server})" if name else api.server


def server_of(settings: Settings) -> str:
    """Return the API server's address in the kubeconfig that is used; empty if there is none. Asks nobody."""
    from rollout.adapters.kube.kubeconfig import find_login

    try:
        return find_login(settings.cluster.kubeconfig, settings.cluster.context or None).server
    except KubeconfigError:
        return ""


def host_shell(options: SshSettings) -> HostExecutor:
    """Return what carries commands to the hosts."""
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


def inventory(options: SshSettings, defaults: SshDefaults) -> Inventory | None:
    """Return the inventory that is named; None where the Nodes are the inventory."""
    if options.inventory is None:
        return None
    from rollout.adapters.ansible.inventory import read_inventory

    by_ansible = options.executor is Executor.ANSIBLE
    with show_progress("asking ansible-inventory for the hosts"):
        return read_inventory(
            options.inventory, _ansible_settings(options), defaults, by_ansible=by_ansible
        )


def gates(settings: Settings, alerts: AlertPolicy, end: Deadline | None = None) -> GatePorts:
    """Return what the gates ask outside the cluster: the operator's command, terminal and playbooks, and Prometheus.

    `alerts` are the plan's. The token goes nowhere but where the settings themselves point. `end`
    as for the ports.
    """
    if settings.alerts.silence and not settings.alerts.alertmanager_url:
        raise UsageError(
            "alerts.silence has no effect without alerts.alertmanager-url", hint="Give its address."
        )
    source = None
    if alerts.url:
        token = token_for(
            alerts.url, settings.alerts.prometheus_url, os.environ.get(TOKEN_VARIABLE, "")
        )
        alertmanager = settings.alerts.alertmanager_url
        source = PrometheusAlerts(
            alerts.url, matchers=alerts.matchers, token=token, alertmanager=alertmanager
        ).active
    return GatePorts(
        command=(
            partial(ask_command, split_command(settings.gates.command))
            if settings.gates.command
            else None
        ),
        confirmation=TerminalConfirmation() if settings.gates.interactive else None,
        alerts=source,
        playbooks=_node_playbooks(settings),
        end=end,
    )


def silences(own: AlertsSettings, hosts: Mapping[str, Host]) -> NodeSilences | None:
    """Return what has Alertmanager silence the nodes in flight; None where nobody asks for that."""
    if not own.silence:
        return None
    addresses = {name: host.address for name, host in hosts.items()}
    return NodeSilences(own.alertmanager_url, own.silence, addresses, system_clock(), say)


def _node_playbooks(settings: Settings) -> NodePlaybooks | None:
    """Return the operator's playbooks around each reboot, which are Ansible's whatever the executor is."""
    by_occasion = {
        Occasion.PRE_REBOOT: settings.reboot.pre_playbook,
        Occasion.POST_REBOOT: settings.reboot.post_playbook,
    }
    files = {occasion: file for occasion, file in by_occasion.items() if file is not None}
    if not files:
        return None
    from rollout.adapters.ansible.playbook_run import AnsiblePlaybooks

    return AnsiblePlaybooks(_ansible_settings(settings.ssh), files)


def exposition(*collectors: Any) -> Callable[[], bytes]:
    """Return the text of these metrics, and of this process's own, each time that it is asked for."""
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)


def system_clock() -> Clock:
    """Return this machine's clocks; tests have waits hurried by a variable that is no setting."""
    return SystemClock(float(os.environ.get(HURRIED_VARIABLE) or 1))


def now() -> datetime:
    """Return the time by this machine's clock."""
    return system_clock().now()


def lease_holder() -> str:
    """Who holds the lock, for people: user, machine, process."""
    return f"{operator()}/{os.getpid()}"


def operator() -> str:
    """Who has given the command, for people: user and machine."""
    return f"{getpass.getuser()}@{socket.gethostname()}"
