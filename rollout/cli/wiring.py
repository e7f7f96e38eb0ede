"""Makes the adapters, late, so that `--help` loads no client."""

import getpass
import os
import socket
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rollout.adapters.clock import SystemClock
from rollout.cli.log import stage
from rollout.cli.settings.schema import Executor, Settings, SshSettings
from rollout.cli.terminal import show_progress
from rollout.errors import KubeconfigError
from rollout.ports import Clock, ClusterApi, HostExecutor

if TYPE_CHECKING:
    from rollout.adapters.ansible.settings import AnsibleSettings
    from rollout.adapters.kube.kubeconfig import Login
    from rollout.gather.inventory import Inventory, SshDefaults

HURRIED_VARIABLE = "NODE_ROLLOUT_TEST_HURRIED"


def cluster_api(settings: Settings) -> ClusterApi:
    from rollout.adapters.kube.api import connect

    with stage("connect") as add_note:
        api = connect(settings.cluster.kubeconfig, settings.cluster.context or None)
        add_note(api.server)
    return api


def find_login(settings: Settings) -> "Login | None":
    """Return None without a kubeconfig, as in a pod."""
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
    from rollout.adapters.ssh.logged_shell import logged_shell

    if options.executor is Executor.ANSIBLE:
        from rollout.adapters.ansible.executor import AnsibleExecutor

        return logged_shell(AnsibleExecutor(ansible_settings(options)))
    from rollout.adapters.ssh.keys import PASSPHRASE_VARIABLE
    from rollout.adapters.ssh.shell import ParamikoShell

    shell = ParamikoShell(
        known_hosts=options.known_hosts,
        host_key_checking=options.host_key_checking,
        key_file=options.key,
        passphrase=os.environ.get(PASSPHRASE_VARIABLE, ""),
    )
    return logged_shell(shell)


def ansible_settings(options: SshSettings) -> "AnsibleSettings":
    from rollout.adapters.ansible.settings import AnsibleSettings

    return AnsibleSettings(
        inventory=options.inventory,
        user=options.user or None,
        port=options.port,
        key_file=options.key,
        known_hosts=options.known_hosts,
        ssh_config=options.config,
        host_key_checking=options.host_key_checking,
    )


def read_ansible_inventory(options: SshSettings, defaults: "SshDefaults") -> "Inventory | None":
    if options.inventory is None:
        return None
    from rollout.adapters.ansible.inventory import read_inventory

    by_ansible = options.executor is Executor.ANSIBLE
    with show_progress("asking ansible-inventory for the hosts"):
        return read_inventory(
            options.inventory, ansible_settings(options), defaults, by_ansible=by_ansible
        )


def exposition(*collectors: Any) -> Callable[[], bytes]:
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)


def system_clock() -> Clock:
    """Tests shorten its waits by a variable."""
    return SystemClock(float(os.environ.get(HURRIED_VARIABLE) or 1))


def now() -> datetime:
    return system_clock().now()


def lock_holder() -> str:
    return f"{operator()}/{os.getpid()}"


def operator() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"
