"""Flags of gates that do nothing without another one: whoever gives them believes in a gate that is not there."""

from collections.abc import Iterator

from rollout.model.gates import AlertPolicy, GatePolicy, WindowPolicy


def idle_gates(gates: GatePolicy) -> Iterator[str]:
    """What to warn of; a sentence each."""
    if idle := ", ".join(_idle_of_alerts(gates.alerts)):
        yield f"no alert holds anything up: {idle} does nothing without --prometheus-url"
    if idle := ", ".join(_idle_of_windows(gates.windows)):
        yield f"no window holds anything up: {idle} does nothing without --window"


def _idle_of_alerts(alerts: AlertPolicy) -> Iterator[str]:
    if not alerts.url and alerts.pattern:
        yield "--alert-filter-regexp"
    if not alerts.url and alerts.match_only:
        yield "--alert-filter-match-only"
    if not alerts.url and alerts.firing_only:
        yield "--alert-firing-only"


def _idle_of_windows(windows: WindowPolicy) -> Iterator[str]:
    if not windows.windows and windows.fit:
        yield "--window-fit"
    if not windows.windows and windows.wait:
        yield "--wait-window"
