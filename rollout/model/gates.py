"""What the operator wants asked before a node is begun, rebooted or returned; part of the policy."""

import re
from dataclasses import dataclass
from enum import StrEnum

from rollout.model.marks import FLUO_PREFIX
from rollout.model.quantity import Duration, Number

_MATCHER = re.compile(r'[A-Za-z_][A-Za-z0-9_]{0,99}(=|!=|=~|!~)"(?:[^"\\\n]|\\.){0,500}"')


def is_matcher(text: str) -> bool:
    """Whether it is a label matcher as PromQL has them, and nothing more."""
    return _MATCHER.fullmatch(text) is not None


class GateVariable(StrEnum):
    """What a gate command is told by its environment. None is a flag's name: it may well run `rollout` itself."""

    STAGE = "ROLLOUT_GATE_STAGE"
    RUN = "ROLLOUT_GATE_RUN"
    WAVE = "ROLLOUT_GATE_WAVE"
    WAVES = "ROLLOUT_GATE_WAVES"
    NODES = "ROLLOUT_GATE_NODES"
    NODE = "ROLLOUT_GATE_NODE"
    ADDRESS = "ROLLOUT_GATE_ADDRESS"
    RUNNING_VERSION = "ROLLOUT_GATE_RUNNING_VERSION"
    STAGED_VERSION = "ROLLOUT_GATE_STAGED_VERSION"


@dataclass(frozen=True, slots=True)
class WindowPolicy:
    """When nodes may be begun: windows as written, none for always, and never in a freeze.

    Only what is estimated to end inside is begun. `wait`: wait for the next one instead of ending.
    """

    windows: tuple[str, ...] = ()
    wait: bool = False
    freezes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HookPolicy:
    """Annotations that checks of the operator's set to "true" on a node: before its drain, and before its uncordon."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    prefix: str = FLUO_PREFIX
    timeout: Duration = Duration(3600)


@dataclass(frozen=True, slots=True)
class AlertPolicy:
    """Prometheus' firing alerts that keep nodes from being begun; an empty `url` asks for none.

    `matchers` are Prometheus' own, of labels: an alert that one of them does not match does not
    count.
    """

    url: str = ""
    matchers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """All gates. `blocking_pods` are label selectors; `timeout` is how long one gate may hold a node up."""

    windows: WindowPolicy = WindowPolicy()
    hooks: HookPolicy = HookPolicy()
    alerts: AlertPolicy = AlertPolicy()
    blocking_pods: tuple[str, ...] = ()
    timeout: Duration = Duration(1800)
    health_checks: Number = 2
    soak: Duration = Duration(0)
    ignored_rivals: tuple[str, ...] = ()
