"""Every option that more than one command takes, declared once, in groups.

A group is a frozen dataclass; `flattening` turns its fields into flags. The environment variable of a flag is
`ROLLOUT_` and its name; the key in rollout.toml is its name.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rollout.cli.options import values
from rollout.cli.settings.defaults import load_defaults
from rollout.model.host import DEFAULT_SSH_PORT, DEFAULT_SSH_USER
from rollout.model.marks import LEASE_NAMESPACE
from rollout.model.policy import DrainPolicy, Policy, Selection
from rollout.model.quantity import Duration

CLUSTER = "Cluster"
NODES = "Nodes"
SSH = "SSH"
WAVES = "Waves"
DRAIN = "Drain"
PATIENCE = "Patience"
GENERAL = "Output and settings"

_DRAIN = DrainPolicy()
_POLICY = Policy()


class OutputFormat(StrEnum):
    """How data is printed."""

    TEXT = "text"
    JSON = "json"


class HostKeys(StrEnum):
    """What to do with host keys."""

    STRICT = "strict"
    ACCEPT_NEW = "accept-new"
    OFF = "off"


class Executor(StrEnum):
    """What carries commands to the hosts."""

    SSH = "ssh"
    ANSIBLE = "ansible"


@dataclass(frozen=True, slots=True)
class GeneralOptions:
    """How to print, and where settings come from."""

    output: Annotated[
        OutputFormat,
        typer.Option(
            "--output", "-o", envvar="ROLLOUT_OUTPUT", show_envvar=False, help="How to print.", rich_help_panel=GENERAL
        ),
    ] = OutputFormat.TEXT
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            envvar="ROLLOUT_CONFIG",
            show_envvar=False,
            metavar="FILE",
            help="Settings: any flag, by its name. Default: your rollout.toml here, which may only tune.",
            is_eager=True,
            callback=load_defaults,
            rich_help_panel=GENERAL,
        ),
    ] = None
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            envvar="ROLLOUT_VERBOSE",
            show_envvar=False,
            help="Say more; show what caused an error.",
            rich_help_panel=GENERAL,
        ),
    ] = False

    @property
    def as_json(self) -> bool:
        """Whether programs read it."""
        return self.output is OutputFormat.JSON


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Which cluster."""

    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            envvar="ROLLOUT_KUBECONFIG",
            show_envvar=False,
            metavar="FILE",
            help="Default: $KUBECONFIG, then ~/.kube/config, then the pod's own account.",
            rich_help_panel=CLUSTER,
        ),
    ] = None
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            envvar="ROLLOUT_CONTEXT",
            show_envvar=False,
            metavar="NAME",
            help="Context of the kubeconfig. Default: its current one.",
            rich_help_panel=CLUSTER,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class SelectionOptions:
    """Which nodes."""

    selector: Annotated[
        str,
        typer.Option(
            "--selector",
            "-l",
            envvar="ROLLOUT_SELECTOR",
            show_envvar=False,
            metavar="SELECTOR",
            parser=values.label_selector,
            help="Nodes with these labels, as kubectl takes them.",
            show_default=False,
            rich_help_panel=NODES,
        ),
    ] = ""
    node: Annotated[
        list[str] | None,
        typer.Option(
            "--node",
            envvar="ROLLOUT_NODE",
            show_envvar=False,
            metavar="NAME",
            help="Only this node. Repeatable.",
            rich_help_panel=NODES,
        ),
    ] = None
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            "--exclude",
            envvar="ROLLOUT_EXCLUDE",
            show_envvar=False,
            metavar="NAME",
            help="Leave this node out; shell patterns are understood. Repeatable.",
            rich_help_panel=NODES,
        ),
    ] = None

    @property
    def selection(self) -> Selection:
        """The same, as the plan records it."""
        return Selection(self.selector.strip(), _names(self.node), _names(self.exclude))


def _names(values: list[str] | None) -> tuple[str, ...]:
    """Repeated and comma-separated names, each once, in order."""
    every = (name.strip() for value in values or () for name in value.split(","))
    return tuple(dict.fromkeys(name for name in every if name))


@dataclass(frozen=True, slots=True)
class SshOptions:
    """How the hosts are reached."""

    executor: Annotated[
        Executor,
        typer.Option(
            "--executor",
            envvar="ROLLOUT_EXECUTOR",
            show_envvar=False,
            help="What carries commands to the hosts: rollout's own SSH, or Ansible with your inventory's ways.",
            rich_help_panel=SSH,
        ),
    ] = Executor.SSH
    inventory: Annotated[
        Path | None,
        typer.Option(
            "--inventory",
            "-i",
            envvar="ROLLOUT_INVENTORY",
            show_envvar=False,
            metavar="FILE",
            help="Ansible inventory of the hosts: INI or YAML, with Ansible any. Default: the Nodes' own addresses.",
            rich_help_panel=SSH,
        ),
    ] = None
    ssh_user: Annotated[
        str | None,
        typer.Option(
            "--ssh-user",
            envvar="ROLLOUT_SSH_USER",
            show_envvar=False,
            metavar="USER",
            help=f"User. Default: the SSH configuration's, else {DEFAULT_SSH_USER}.",
            rich_help_panel=SSH,
        ),
    ] = None
    ssh_port: Annotated[
        int | None,
        typer.Option(
            "--ssh-port",
            envvar="ROLLOUT_SSH_PORT",
            show_envvar=False,
            metavar="PORT",
            min=1,
            max=65535,
            help=f"Port. Default: the SSH configuration's, else {DEFAULT_SSH_PORT}.",
            rich_help_panel=SSH,
        ),
    ] = None
    ssh_key: Annotated[
        Path | None,
        typer.Option(
            "--ssh-key",
            envvar="ROLLOUT_SSH_KEY",
            show_envvar=False,
            metavar="FILE",
            help="Private key. Default: the agent's keys, then the usual files in ~/.ssh.",
            rich_help_panel=SSH,
        ),
    ] = None
    known_hosts: Annotated[
        Path | None,
        typer.Option(
            "--known-hosts",
            envvar="ROLLOUT_KNOWN_HOSTS",
            show_envvar=False,
            metavar="FILE",
            help="Host keys to trust. Default: the SSH configuration's, else ~/.ssh/known_hosts.",
            rich_help_panel=SSH,
        ),
    ] = None
    ssh_config: Annotated[
        Path | None,
        typer.Option(
            "--ssh-config",
            envvar="ROLLOUT_SSH_CONFIG",
            show_envvar=False,
            metavar="FILE",
            help="OpenSSH client configuration to go by, or none. Default: those of ssh, ~/.ssh/config first.",
            rich_help_panel=SSH,
        ),
    ] = None
    host_key_checking: Annotated[
        HostKeys,
        typer.Option(
            "--host-key-checking",
            envvar="ROLLOUT_HOST_KEY_CHECKING",
            show_envvar=False,
            help="strict: only known keys. accept-new: trust and record a first one. off: trust anything.",
            rich_help_panel=SSH,
        ),
    ] = HostKeys.STRICT
    probe_timeout: Annotated[
        Duration,
        typer.Option(
            "--probe-timeout",
            envvar="ROLLOUT_PROBE_TIMEOUT",
            show_envvar=False,
            metavar="DURATION",
            parser=values.some_time,
            help="How long one host may take to answer.",
            rich_help_panel=SSH,
        ),
    ] = Duration(60)
    probe_concurrency: Annotated[
        int,
        typer.Option(
            "--probe-concurrency",
            envvar="ROLLOUT_PROBE_CONCURRENCY",
            show_envvar=False,
            metavar="N",
            min=1,
            help="How many hosts are asked at once.",
            rich_help_panel=SSH,
        ),
    ] = 50


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """Where the lock is."""

    lease_namespace: Annotated[
        str,
        typer.Option(
            "--lease-namespace",
            envvar="ROLLOUT_LEASE_NAMESPACE",
            show_envvar=False,
            metavar="NAMESPACE",
            parser=values.namespace,
            help="Namespace of the Lease that keeps rollouts from running side by side.",
            rich_help_panel=CLUSTER,
        ),
    ] = LEASE_NAMESPACE
