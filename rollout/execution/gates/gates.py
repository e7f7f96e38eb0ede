"""Where a rollout asks whether it may go on: declared here, beside those who ask."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rollout.gather.hosts.boot import BootFacts
from rollout.model.plan import PlannedNode, Wave

if TYPE_CHECKING:
    from rollout.execution.node.context import NodeContext
    from rollout.execution.node.playbooks import NodePlaybooks


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a node may not begin, empty where it may; `final` where no waiting will change that."""

    why: str = ""
    final: bool = False


OPEN = Hold()


class Gates(Protocol):
    """Everything that can hold a rollout up."""

    def before_rollout(self) -> None:
        """Return where it may begin; `BlockedError` where not."""
        ...

    def before_wave(self, wave: Wave) -> str:
        """Why this wave may not begin; empty where it may."""
        ...

    def hold(self, node: PlannedNode) -> Hold:
        """Whether a node may begin now; asked again and again, so it never waits itself."""
        ...

    def before_node(self, context: "NodeContext") -> None:
        """Return where an untouched node may be begun; `NodeFailure` where not."""
        ...

    def before_reboot(self, context: "NodeContext") -> None:
        """Return once a cordoned node may be drained and rebooted; `NodeFailure` where it may not in time."""
        ...

    def before_command(self, context: "NodeContext") -> None:
        """Return once a drained node may be told to reboot; `NodeFailure` where it may not in time."""
        ...

    def after_reboot(self, context: "NodeContext", boot: BootFacts) -> None:
        """Return once a rebooted node may be given back; `NodeFailure` where it may not in time."""
        ...

    def soak(self, wave: Wave) -> bool:
        """Let time pass after a wave; whether any was asked for."""
        ...


class NoGates:
    """Nothing is held up."""

    def before_rollout(self) -> None:
        """It may."""

    def before_wave(self, wave: Wave) -> str:  # noqa: ARG002 - the protocol's
        """It may."""
        return ""

    def hold(self, node: PlannedNode) -> Hold:  # noqa: ARG002 - the protocol's
        """It may."""
        return OPEN

    def before_node(self, context: "NodeContext") -> None:
        """It may."""

    def before_reboot(self, context: "NodeContext") -> None:
        """It may."""

    def before_command(self, context: "NodeContext") -> None:
        """It may."""

    def after_reboot(self, context: "NodeContext", boot: BootFacts) -> None:
        """It may."""

    def soak(self, wave: Wave) -> bool:  # noqa: ARG002 - the protocol's
        """None was asked for."""
        return False


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
    """What the gates of one process ask outside the cluster."""

    command: GateCommand | None = None
    confirmation: Confirmation | None = None
    alerts: AlertSource | None = None
    playbooks: "NodePlaybooks | None" = None
