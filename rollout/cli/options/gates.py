"""Options of the gates: what is asked before a node is begun, rebooted or given back."""

from dataclasses import dataclass, replace
from typing import Annotated

import typer

from rollout.cli.options import values
from rollout.cli.options.declaration import GATES, NODES, WAVES, WINDOWS, Flag
from rollout.cli.options.nodes import names
from rollout.errors import UsageError
from rollout.model.gates import AlertPolicy, GatePolicy, HookPolicy, WindowPolicy
from rollout.model.policy import Policy
from rollout.model.quantity import Count, Duration
from rollout.planning.rivals import RIVALS

_GATES = GatePolicy()
_HOOKS = HookPolicy()


PrometheusUrl = Annotated[
    str,
    Flag(
        GATES,
        "Start no node while this Prometheus has alerts, or cannot be reached.",
        "URL",
        read=values.prometheus_url,
    ),
]


IgnoreRivalOption = Annotated[
    list[str] | None,
    Flag(NODES, f"Ignore this rival: {', '.join(RIVALS)}. Repeatable.", "NAME", read=values.rival),
]


@dataclass(frozen=True, slots=True)
class GateOptions:
    """Gates that are part of the plan."""

    window: Annotated[
        list[str] | None,
        Flag(
            WINDOWS,
            "Start nodes only in this window: [DAYS] HH:MM DURATION [TIMEZONE] (default UTC). Repeatable.",
            "WINDOW",
            check=values.windows,
        ),
    ] = None
    reboot_window_start: Annotated[
        str,
        Flag(
            WINDOWS,
            "One more window, written as for Flatcar's operator: 'Thu 23:00', or '14:00' for every day.",
            "START",
        ),
    ] = ""
    reboot_window_length: Annotated[str, Flag(WINDOWS, "Its length.", "DURATION")] = ""
    window_fit: Annotated[
        bool, Flag(WINDOWS, "Start only nodes that are estimated to be back before the window closes.")
    ] = False
    wait_window: Annotated[bool, Flag(WINDOWS, "Wait for the next window instead of ending with what is left.")] = False
    before_reboot_annotations: Annotated[
        list[str] | None,
        Flag(
            GATES,
            "Drain a node only once its checks have set these annotations to true. Comma-separated, repeatable.",
            "NAMES",
            read=values.label_names,
        ),
    ] = None
    after_reboot_annotations: Annotated[
        list[str] | None,
        Flag(
            GATES,
            "Give a rebooted node back only once its checks have set these to true.",
            "NAMES",
            read=values.label_names,
        ),
    ] = None
    hook_prefix: Annotated[
        str,
        Flag(
            GATES,
            "Prefix of the labels before-reboot and after-reboot that ask for checks.",
            "PREFIX",
            read=values.label_prefix,
        ),
    ] = _HOOKS.prefix
    hook_timeout: Annotated[Duration, Flag(GATES, "How long checks may take.", "DURATION", read=values.some_time)] = (
        _HOOKS.timeout
    )
    blocking_pod_selector: Annotated[
        list[str] | None,
        Flag(
            GATES,
            "Do not start a node while a pod with these labels runs on it. Repeatable.",
            "SELECTOR",
            read=values.label_selector,
        ),
    ] = None
    prometheus_url: PrometheusUrl = ""
    alert_filter_regexp: Annotated[
        str, Flag(GATES, "Alerts whose names match do not count.", "REGEXP", read=values.pattern)
    ] = ""
    alert_filter_match_only: Annotated[bool, Flag(GATES, "Only alerts that match --alert-filter-regexp count.")] = False
    alert_firing_only: Annotated[bool, Flag(GATES, "Pending alerts do not count.")] = False
    gate_timeout: Annotated[
        Duration,
        Flag(GATES, "How long pods, alerts or the gate command may hold a node.", "DURATION", read=values.some_time),
    ] = _GATES.timeout
    health_checks: Annotated[int, Flag(WAVES, "How many good checks in a row settle a wave.", "N", least=1)] = (
        _GATES.health_checks
    )
    ramp: Annotated[
        str,
        Flag(
            WAVES,
            "Sizes of the first waves, the last for all that follow: 1,10%,25%; never above --max-unavailable.",
            "COUNTS",
            read=values.ramp,
        ),
    ] = ""
    soak: Annotated[
        Duration, Flag(WAVES, "How long to soak: the pause between two waves.", "DURATION", read=values.duration)
    ] = _GATES.soak
    ignore_rival: IgnoreRivalOption = None

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
                names(self.before_reboot_annotations),
                names(self.after_reboot_annotations),
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
            from rollout.planning.windows import fluo_window

            written += (fluo_window(self.reboot_window_start, self.reboot_window_length),)
        return written


@dataclass(frozen=True, slots=True)
class LocalGateOptions:
    """Gates of this process: never saved, never taken from the cluster."""

    gate_command: Annotated[
        str,
        Flag(
            GATES,
            "Command to run before the rollout, each wave and each node; it holds them until it succeeds.",
            "COMMAND",
            read=values.command_words,
        ),
    ] = ""
    interactive: Annotated[bool, Flag(GATES, "Ask before each wave.")] = False


@dataclass(frozen=True, slots=True)
class AlertAddressOptions:
    """For commands whose rules stand elsewhere: where this process's token may go."""

    prometheus_url: PrometheusUrl = ""


def is_flag_given(call: typer.Context, name: str) -> bool:
    """Whether a flag stands on the command line itself."""
    source = call.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def refuse_another_address(call: typer.Context, own_url: str, policy: Policy) -> None:
    """`UsageError` for a --prometheus-url on the command line that is not the one which is asked."""
    from rollout.adapters.prometheus import is_same_place

    url = policy.gates.alerts.url
    if is_flag_given(call, "prometheus_url") and not is_same_place(own_url, url):
        raise UsageError(
            f"--prometheus-url {own_url}, but this was planned with {url or 'no Prometheus'}",
            hint="Drop the flag, or make a new plan with it.",
        )
