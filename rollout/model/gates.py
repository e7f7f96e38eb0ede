import re
from enum import StrEnum

from msgspec import Struct

from rollout.model.marks import FLUO_PREFIX
from rollout.model.quantity import Duration, Number

_MATCHER = re.compile(r'[A-Za-z_][A-Za-z0-9_]{0,99}(=|!=|=~|!~)"(?:[^"\\\n]|\\.){0,500}"')


def is_matcher(text: str) -> bool:
    """Whether it is a PromQL label matcher."""
    return _MATCHER.fullmatch(text) is not None


class GateVariable(StrEnum):
    """A gate command's variables; none sets a flag of `rollout`."""

    STAGE = "ROLLOUT_GATE_STAGE"
    RUN = "ROLLOUT_GATE_RUN"
    WAVE = "ROLLOUT_GATE_WAVE"
    WAVES = "ROLLOUT_GATE_WAVES"
    NODES = "ROLLOUT_GATE_NODES"
    NODE = "ROLLOUT_GATE_NODE"
    ADDRESS = "ROLLOUT_GATE_ADDRESS"
    RUNNING_VERSION = "ROLLOUT_GATE_RUNNING_VERSION"
    STAGED_VERSION = "ROLLOUT_GATE_STAGED_VERSION"


class WindowPolicy(Struct, frozen=True):
    """When nodes may start: in a window, if there are any, and outside of freezes."""

    windows: tuple[str, ...] = ()
    wait: bool = False
    freezes: tuple[str, ...] = ()


class HookPolicy(Struct, frozen=True):
    """Annotations that checks have to set to "true" before a drain or an uncordon."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    prefix: str = FLUO_PREFIX
    timeout: Duration = Duration(3600)


class AlertPolicy(Struct, frozen=True):
    """Prometheus alerts that prevent nodes from starting."""

    url: str = ""
    # PromQL; an alert must match all.
    matchers: tuple[str, ...] = ()


class HealthRule(Struct, frozen=True):
    """An object, and a CEL expression that is true while the object is healthy."""

    resource: str
    expression: str


class GatePolicy(Struct, frozen=True):
    """The rules of all gates."""

    windows: WindowPolicy = WindowPolicy()
    hooks: HookPolicy = HookPolicy()
    alerts: AlertPolicy = AlertPolicy()
    blocking_pods: tuple[str, ...] = ()
    # For one gate and one node.
    timeout: Duration = Duration(1800)
    health_checks: Number = 2
    soak: Duration = Duration(0)
    ignored_rivals: tuple[str, ...] = ()
    healthy: tuple[HealthRule, ...] = ()
