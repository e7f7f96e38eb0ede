"""Options of the gates: what is asked before a node is begun, rebooted or given back."""

from dataclasses import dataclass, replace
from typing import Annotated

import typer

from rollout.cli.options import values
from rollout.cli.options.alerts import GATES, PrometheusUrl
from rollout.cli.options.general import NODES, WAVES
from rollout.model.gates import AlertPolicy, GatePolicy, HookPolicy, WindowPolicy
from rollout.model.policy import Policy
from rollout.model.quantity import Count, Duration
from rollout.planning.windows import fluo_window

WINDOWS = "Windows"

_GATES = GatePolicy()
_HOOKS = HookPolicy()


@dataclass(frozen=True, slots=True)
class GateOptions:
    """Gates that are part of the plan."""

    window: Annotated[
        list[str] | None,
        typer.Option(
            "--window",
            envvar="ROLLOUT_WINDOW",
            show_envvar=False,
            metavar="WINDOW",
            callback=values.windows,
            help="Begin nodes only in this window: [DAYS] HH:MM DURATION [TIMEZONE] (default UTC). Repeatable.",
            rich_help_panel=WINDOWS,
        ),
    ] = None
    reboot_window_start: Annotated[
        str,
        typer.Option(
            "--reboot-window-start",
            envvar="ROLLOUT_REBOOT_WINDOW_START",
            show_envvar=False,
            metavar="START",
            show_default=False,
            help="One more window, written as for Flatcar's operator: 'Thu 23:00', or '14:00' for every day.",
            rich_help_panel=WINDOWS,
        ),
    ] = ""
    reboot_window_length: Annotated[
        str,
        typer.Option(
            "--reboot-window-length",
            envvar="ROLLOUT_REBOOT_WINDOW_LENGTH",
            show_envvar=False,
            metavar="DURATION",
            show_default=False,
            help="Its length.",
            rich_help_panel=WINDOWS,
        ),
    ] = ""
    window_fit: Annotated[
        bool,
        typer.Option(
            "--window-fit",
            envvar="ROLLOUT_WINDOW_FIT",
            show_envvar=False,
            help="Begin only nodes that are estimated to be back before the window closes.",
            rich_help_panel=WINDOWS,
        ),
    ] = False
    wait_window: Annotated[
        bool,
        typer.Option(
            "--wait-window",
            envvar="ROLLOUT_WAIT_WINDOW",
            show_envvar=False,
            help="Wait for the next window instead of ending with what is left.",
            rich_help_panel=WINDOWS,
        ),
    ] = False
    before_reboot_annotations: Annotated[
        list[str] | None,
        typer.Option(
            "--before-reboot-annotations",
            envvar="ROLLOUT_BEFORE_REBOOT_ANNOTATIONS",
            show_envvar=False,
            metavar="NAMES",
            parser=values.label_names,
            help="Drain a node only once its checks have set these annotations to true. Comma-separated, repeatable.",
            rich_help_panel=GATES,
        ),
    ] = None
    after_reboot_annotations: Annotated[
        list[str] | None,
        typer.Option(
            "--after-reboot-annotations",
            envvar="ROLLOUT_AFTER_REBOOT_ANNOTATIONS",
            show_envvar=False,
            metavar="NAMES",
            parser=values.label_names,
            help="Give a rebooted node back only once its checks have set these to true.",
            rich_help_panel=GATES,
        ),
    ] = None
    hook_prefix: Annotated[
        str,
        typer.Option(
            "--hook-prefix",
            envvar="ROLLOUT_HOOK_PREFIX",
            show_envvar=False,
            metavar="PREFIX",
            parser=values.label_prefix,
            help="Prefix of the labels before-reboot and after-reboot that ask for checks.",
            rich_help_panel=GATES,
        ),
    ] = _HOOKS.prefix
    hook_timeout: Annotated[
        Duration,
        typer.Option(
            "--hook-timeout",
            envvar="ROLLOUT_HOOK_TIMEOUT",
            show_envvar=False,
            metavar="DURATION",
            parser=values.some_time,
            help="How long checks may take.",
            rich_help_panel=GATES,
        ),
    ] = _HOOKS.timeout
    blocking_pod_selector: Annotated[
        list[str] | None,
        typer.Option(
            "--blocking-pod-selector",
            envvar="ROLLOUT_BLOCKING_POD_SELECTOR",
            show_envvar=False,
            metavar="SELECTOR",
            parser=values.label_selector,
            help="Do not begin a node while a pod with these labels runs there. Repeatable.",
            rich_help_panel=GATES,
        ),
    ] = None
    prometheus_url: PrometheusUrl = ""
    alert_filter_regexp: Annotated[
        str,
        typer.Option(
            "--alert-filter-regexp",
            envvar="ROLLOUT_ALERT_FILTER_REGEXP",
            show_envvar=False,
            metavar="REGEXP",
            parser=values.pattern,
            show_default=False,
            help="Alerts whose names match do not count.",
            rich_help_panel=GATES,
        ),
    ] = ""
    alert_filter_match_only: Annotated[
        bool,
        typer.Option(
            "--alert-filter-match-only",
            envvar="ROLLOUT_ALERT_FILTER_MATCH_ONLY",
            show_envvar=False,
            help="Only alerts that match --alert-filter-regexp count.",
            rich_help_panel=GATES,
        ),
    ] = False
    alert_firing_only: Annotated[
        bool,
        typer.Option(
            "--alert-firing-only",
            envvar="ROLLOUT_ALERT_FIRING_ONLY",
            show_envvar=False,
            help="Pending alerts do not count.",
            rich_help_panel=GATES,
        ),
    ] = False
    gate_timeout: Annotated[
        Duration,
        typer.Option(
            "--gate-timeout",
            envvar="ROLLOUT_GATE_TIMEOUT",
            show_envvar=False,
            metavar="DURATION",
            parser=values.some_time,
            help="How long pods, alerts or the gate command may hold a node up.",
            rich_help_panel=GATES,
        ),
    ] = _GATES.timeout
    health_checks: Annotated[
        int,
        typer.Option(
            "--health-checks",
            envvar="ROLLOUT_HEALTH_CHECKS",
            show_envvar=False,
            metavar="N",
            min=1,
            help="How many good checks in a row make a wave settled.",
            rich_help_panel=WAVES,
        ),
    ] = _GATES.health_checks
    ramp: Annotated[
        str,
        typer.Option(
            "--ramp",
            envvar="ROLLOUT_RAMP",
            show_envvar=False,
            metavar="COUNTS",
            parser=values.ramp,
            show_default=False,
            help="Sizes of the first waves, the last for all that follow: 1,10%,25%; never above --max-unavailable.",
            rich_help_panel=WAVES,
        ),
    ] = ""
    soak: Annotated[
        Duration,
        typer.Option(
            "--soak",
            envvar="ROLLOUT_SOAK",
            show_envvar=False,
            metavar="DURATION",
            parser=values.duration,
            help="How long to let a wave run before the next.",
            rich_help_panel=WAVES,
        ),
    ] = _GATES.soak
    ignore_rival: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore-rival",
            envvar="ROLLOUT_IGNORE_RIVAL",
            show_envvar=False,
            metavar="NAME",
            parser=values.rival,
            help="Go on beside it: locksmithd, fluo, cluo, kured or system-upgrade-controller. Repeatable.",
            rich_help_panel=NODES,
        ),
    ] = None

    def added_to(self, policy: Policy) -> Policy:
        """The policy with these gates."""
        return replace(policy, ramp=self._ramp, gates=self._gates)

    @property
    def _ramp(self) -> tuple[Count, ...]:
        return tuple(Count.parse(part) for part in self.ramp.split(",") if part.strip())

    @property
    def _gates(self) -> GatePolicy:
        return GatePolicy(
            windows=WindowPolicy(self._windows, self.window_fit, self.wait_window),
            hooks=HookPolicy(
                _names(self.before_reboot_annotations),
                _names(self.after_reboot_annotations),
                self.hook_prefix,
                self.hook_timeout,
            ),
            alerts=AlertPolicy(
                self.prometheus_url, self.alert_filter_regexp, self.alert_filter_match_only, self.alert_firing_only
            ),
            blocking_pods=tuple(self.blocking_pod_selector or ()),
            timeout=self.gate_timeout,
            health_checks=self.health_checks,
            soak=self.soak,
            ignored_rivals=tuple(dict.fromkeys(self.ignore_rival or ())),
        )

    @property
    def _windows(self) -> tuple[str, ...]:
        written = tuple(self.window or ())
        if self.reboot_window_start or self.reboot_window_length:
            written += (fluo_window(self.reboot_window_start, self.reboot_window_length),)
        return written


def _names(values: list[str] | None) -> tuple[str, ...]:
    every = (name.strip() for value in values or () for name in value.split(","))
    return tuple(dict.fromkeys(name for name in every if name))


@dataclass(frozen=True, slots=True)
class LocalGateOptions:
    """Gates of this process: never saved, never taken from the cluster."""

    gate_command: Annotated[
        str,
        typer.Option(
            "--gate-command",
            envvar="ROLLOUT_GATE_COMMAND",
            show_envvar=False,
            metavar="COMMAND",
            parser=values.command_words,
            show_default=False,
            help="A command to run before the rollout, each wave and each node; anything but success holds it up.",
            rich_help_panel=GATES,
        ),
    ] = ""
    interactive: Annotated[
        bool,
        typer.Option(
            "--interactive",
            envvar="ROLLOUT_INTERACTIVE",
            show_envvar=False,
            help="Ask before each wave.",
            rich_help_panel=GATES,
        ),
    ] = False
