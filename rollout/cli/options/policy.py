"""The rules of a rollout as flags: plan and apply take them, and a saved plan holds them."""

from dataclasses import dataclass
from typing import Annotated

import typer

from rollout.cli.options import values
from rollout.cli.options.general import DRAIN, NODES, PATIENCE, WAVES
from rollout.model.policy import ControlPlaneOrder, DrainPolicy, Policy
from rollout.model.quantity import LONGEST, Count, Duration

_DRAIN = DrainPolicy()
_POLICY = Policy()


SkipBlockedOption = Annotated[
    bool,
    typer.Option(
        "--skip-blocked",
        envvar="ROLLOUT_SKIP_BLOCKED",
        show_envvar=False,
        help="Leave out nodes whose drain is bound to fail, instead of not starting.",
        rich_help_panel=NODES,
    ),
]


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
            parser=values.at_least_one,
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
            parser=values.label_name,
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
    skip_blocked: SkipBlockedOption = _POLICY.skip_blocked
    max_failures: Annotated[
        Count,
        typer.Option(
            "--max-failures",
            envvar="ROLLOUT_MAX_FAILURES",
            show_envvar=False,
            metavar="COUNT",
            parser=values.at_least_one,
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
            parser=values.some_time,
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
            max=LONGEST,
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
            parser=values.label_selector,
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
            max=LONGEST,
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
            parser=values.some_time,
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
            parser=values.some_time,
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
            parser=values.duration,
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
