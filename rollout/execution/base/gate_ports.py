from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from rollout.execution.base.deadline import Deadline
from rollout.execution.base.health import HealthEvaluation
from rollout.model.host import Host
from rollout.model.tool_output import CommandEnd

GateCommand = Callable[[Mapping[str, str], float, Callable[[], bool]], str]
"""Run the gate command with an environment, a timeout in seconds and a check for a stop.

Returns why it refused, or an empty string.
"""
Confirmation = Callable[[str, Callable[[], bool]], bool]
"""Ask the operator a question, with a check for a stop; return whether they agree."""
AlertSource = Callable[[], tuple[str, ...]]
"""Return the names of the firing alerts; `GateError` if they cannot be read."""


class Occasion(StrEnum):
    PRE_REBOOT = "pre-reboot"
    POST_REBOOT = "post-reboot"


class NodePlaybooks(Protocol):
    def run(
        self,
        occasion: Occasion,
        host: Host,
        variables: Mapping[str, object],
        *,
        timeout: float,
        check: Callable[[], None],
        notice: Callable[[str], None],
    ) -> str:
        """Return why the playbook failed; empty if it passed or there is none.

        `notice` gets each task's name at its start. `check` is called repeatedly; its error ends
        the playbook.
        """
        ...


class Rescue(Protocol):
    """Runs reboot.rescue, within its own timeout."""

    def __call__(
        self, environment: Mapping[str, str], *, is_stopped: Callable[[], bool]
    ) -> CommandEnd: ...


class GatePorts(Struct, frozen=True):
    """None for unused ports."""

    command: GateCommand | None = None
    confirmation: Confirmation | None = None
    alerts: AlertSource | None = None
    evaluate: HealthEvaluation | None = None
    playbooks: NodePlaybooks | None = None
    rescue: Rescue | None = None
    # When this process has to end.
    deadline: Deadline | None = None
