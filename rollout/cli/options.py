"""Every option that more than one command takes, declared once, in groups.

A group is a frozen dataclass; `flattening` turns its fields into flags. The environment variable of a flag is
`ROLLOUT_` and its name; the key in rollout.toml is its name.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rollout.cli import quantities
from rollout.cli.configuration import load_defaults
from rollout.model.host import DEFAULT_SSH_PORT, DEFAULT_SSH_USER
from rollout.model.marks import LEASE_NAMESPACE
from rollout.model.policy import ControlPlaneOrder, DrainPolicy, Policy, Selection
from rollout.model.quantity import Count, Duration

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
            help="Settings: any flag, by its name. Default: rollout.toml here, where there is one.",
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

    inventory: Annotated[
        Path | None,
        typer.Option(
            "--inventory",
            "-i",
            envvar="ROLLOUT_INVENTORY",
            show_envvar=False,
            metavar="FILE",
            help="Ansible inventory of the hosts, INI or YAML. Default: the Nodes' own addresses.",
            rich_help_panel=SSH,
        ),
    ] = None
    ssh_user: Annotated[
        str,
        typer.Option(
            "--ssh-user",
            envvar="ROLLOUT_SSH_USER",
            show_envvar=False,
            metavar="USER",
            help="User.",
            rich_help_panel=SSH,
        ),
    ] = DEFAULT_SSH_USER
    ssh_port: Annotated[
        int,
        typer.Option(
            "--ssh-port",
            envvar="ROLLOUT_SSH_PORT",
            show_envvar=False,
            metavar="PORT",
            min=1,
            max=65535,
            help="Port.",
            rich_help_panel=SSH,
        ),
    ] = DEFAULT_SSH_PORT
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
            help="Host keys to trust. Default: ~/.ssh/known_hosts.",
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
            help="OpenSSH client configuration to go by. Default: none.",
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
            parser=quantities.some_time,
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
class PolicyOptions:
    """The rules of a rollout."""

    max_unavailable: Annotated[
        Count,
        typer.Option(
            "--max-unavailable",
            envvar="ROLLOUT_MAX_UNAVAILABLE",
            show_envvar=False,
            metavar="COUNT",
            parser=quantities.at_least_one,
            help="Most nodes away at once, counting those that are away already: 3, or 25% of the selected ones.",
            rich_help_panel=WAVES,
        ),
    ] = _POLICY.max_unavailable
    canary: Annotated[
        int,
        typer.Option(
            "--canary",
            envvar="ROLLOUT_CANARY",
            show_envvar=False,
            metavar="N",
            min=0,
            help="Take this many nodes alone first, one at a time.",
            rich_help_panel=WAVES,
        ),
    ] = _POLICY.canary
    spread_by: Annotated[
        str,
        typer.Option(
            "--spread-by",
            envvar="ROLLOUT_SPREAD_BY",
            show_envvar=False,
            metavar="LABEL",
            help="Keep a wave within one value of this label: one zone at a time.",
            show_default=False,
            rich_help_panel=WAVES,
        ),
    ] = _POLICY.spread_by
    control_plane: Annotated[
        ControlPlaneOrder,
        typer.Option(
            "--control-plane",
            envvar="ROLLOUT_CONTROL_PLANE",
            show_envvar=False,
            help="When control-plane nodes take their turn, one at a time.",
            rich_help_panel=WAVES,
        ),
    ] = _POLICY.control_plane
    include_cordoned: Annotated[
        bool,
        typer.Option(
            "--include-cordoned",
            envvar="ROLLOUT_INCLUDE_CORDONED",
            show_envvar=False,
            help="Take nodes that somebody else cordoned too; they stay cordoned.",
            rich_help_panel=NODES,
        ),
    ] = _POLICY.include_cordoned
    reboot_idle: Annotated[
        bool,
        typer.Option(
            "--reboot-idle",
            envvar="ROLLOUT_REBOOT_IDLE",
            show_envvar=False,
            help="Take nodes with no update staged too: a rolling reboot.",
            rich_help_panel=NODES,
        ),
    ] = _POLICY.reboot_idle
    skip_blocked: Annotated[
        bool,
        typer.Option(
            "--skip-blocked",
            envvar="ROLLOUT_SKIP_BLOCKED",
            show_envvar=False,
            help="Leave out nodes whose drain is bound to fail, instead of not starting.",
            rich_help_panel=NODES,
        ),
    ] = _POLICY.skip_blocked
    max_failures: Annotated[
        Count,
        typer.Option(
            "--max-failures",
            envvar="ROLLOUT_MAX_FAILURES",
            show_envvar=False,
            metavar="COUNT",
            parser=quantities.at_least_one,
            help="Start no further node once this many failed.",
            rich_help_panel=WAVES,
        ),
    ] = _POLICY.max_failures
    drain_timeout: Annotated[
        Duration,
        typer.Option(
            "--drain-timeout",
            envvar="ROLLOUT_DRAIN_TIMEOUT",
            show_envvar=False,
            metavar="DURATION",
            parser=quantities.some_time,
            help="How long a node's pods may take to leave.",
            rich_help_panel=DRAIN,
        ),
    ] = _DRAIN.timeout
    grace_period: Annotated[
        int | None,
        typer.Option(
            "--grace-period",
            envvar="ROLLOUT_GRACE_PERIOD",
            show_envvar=False,
            metavar="SECONDS",
            min=0,
            help="Seconds a pod has to end. Default: the pod's own.",
            rich_help_panel=DRAIN,
        ),
    ] = _DRAIN.grace_period
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            envvar="ROLLOUT_FORCE",
            show_envvar=False,
            help="Evict pods that nothing will start again.",
            rich_help_panel=DRAIN,
        ),
    ] = _DRAIN.force
    delete_emptydir_data: Annotated[
        bool,
        typer.Option(
            "--delete-emptydir-data/--no-delete-emptydir-data",
            envvar="ROLLOUT_DELETE_EMPTYDIR_DATA",
            show_envvar=False,
            help="Evict pods that keep data on the node.",
            rich_help_panel=DRAIN,
        ),
    ] = _DRAIN.delete_emptydir_data
    disable_eviction: Annotated[
        bool,
        typer.Option(
            "--disable-eviction",
            envvar="ROLLOUT_DISABLE_EVICTION",
            show_envvar=False,
            help="Delete pods instead of evicting them: disruption budgets do not count.",
            rich_help_panel=DRAIN,
        ),
    ] = _DRAIN.disable_eviction
    pod_selector: Annotated[
        str,
        typer.Option(
            "--pod-selector",
            envvar="ROLLOUT_POD_SELECTOR",
            show_envvar=False,
            metavar="SELECTOR",
            parser=quantities.label_selector,
            help="Evict only pods with these labels; the reboot ends all others without asking.",
            show_default=False,
            rich_help_panel=DRAIN,
        ),
    ] = _DRAIN.pod_selector
    skip_wait_for_delete_timeout: Annotated[
        int,
        typer.Option(
            "--skip-wait-for-delete-timeout",
            envvar="ROLLOUT_SKIP_WAIT_FOR_DELETE_TIMEOUT",
            show_envvar=False,
            metavar="SECONDS",
            min=0,
            help="Do not wait for pods that should have been gone for longer than this; 0 waits for all.",
            rich_help_panel=DRAIN,
        ),
    ] = _DRAIN.skip_wait_for_delete_timeout
    reboot_timeout: Annotated[
        Duration,
        typer.Option(
            "--reboot-timeout",
            envvar="ROLLOUT_REBOOT_TIMEOUT",
            show_envvar=False,
            metavar="DURATION",
            parser=quantities.some_time,
            help="How long a host may take to come back.",
            rich_help_panel=PATIENCE,
        ),
    ] = _POLICY.reboot_timeout
    ready_timeout: Annotated[
        Duration,
        typer.Option(
            "--ready-timeout",
            envvar="ROLLOUT_READY_TIMEOUT",
            show_envvar=False,
            metavar="DURATION",
            parser=quantities.some_time,
            help="How long it may then take to be Ready.",
            rich_help_panel=PATIENCE,
        ),
    ] = _POLICY.ready_timeout
    settle_timeout: Annotated[
        Duration,
        typer.Option(
            "--settle-timeout",
            envvar="ROLLOUT_SETTLE_TIMEOUT",
            show_envvar=False,
            metavar="DURATION",
            parser=quantities.duration,
            help="How long the moved pods may take to be available before the next wave.",
            rich_help_panel=PATIENCE,
        ),
    ] = _POLICY.settle_timeout

    @property
    def policy(self) -> Policy:
        """The same, as the plan records it."""
        return Policy(
            max_unavailable=self.max_unavailable,
            canary=self.canary,
            spread_by=self.spread_by,
            control_plane=self.control_plane,
            include_cordoned=self.include_cordoned,
            reboot_idle=self.reboot_idle,
            skip_blocked=self.skip_blocked,
            drain=self._drain,
            reboot_timeout=self.reboot_timeout,
            ready_timeout=self.ready_timeout,
            settle_timeout=self.settle_timeout,
            max_failures=self.max_failures,
        )

    @property
    def _drain(self) -> DrainPolicy:
        return DrainPolicy(
            timeout=self.drain_timeout,
            grace_period=self.grace_period,
            force=self.force,
            delete_emptydir_data=self.delete_emptydir_data,
            disable_eviction=self.disable_eviction,
            pod_selector=self.pod_selector,
            skip_wait_for_delete_timeout=self.skip_wait_for_delete_timeout,
        )


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
            help="Namespace of the Lease that keeps rollouts from running side by side.",
            rich_help_panel=CLUSTER,
        ),
    ] = LEASE_NAMESPACE
