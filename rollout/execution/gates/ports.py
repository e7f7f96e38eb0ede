"""What gates ask outside of the cluster: the operator, their command, their alerts, their playbooks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from rollout.execution.base.deadline import Deadline
from rollout.execution.gates.playbooks import NodePlaybooks


class GateCommand(Protocol):
    """The operator's own command."""

    def run(self, environment: Mapping[str, str], *, seconds: float, stopped: Callable[[], bool]) -> str:
        """Run it with this added to its environment; why it does not let pass, empty where it does."""
        ...


class Confirmation(Protocol):
    """Somebody at a terminal."""

    def given(self, question: str, *, stopped: Callable[[], bool]) -> bool:
        """Whether they agree."""
        ...


class AlertSource(Protocol):
    """What watches over the cluster."""

    def active(self) -> tuple[str, ...]:
        """Names of alerts that count; `GateError` where it cannot be asked."""
        ...


@dataclass(frozen=True, slots=True)
class GatePorts:
    """What the gates of one process ask outside the cluster; `end` is by when its nodes have to be done."""

    command: GateCommand | None = None
    confirmation: Confirmation | None = None
    alerts: AlertSource | None = None
    playbooks: NodePlaybooks | None = None
    end: Deadline | None = None
