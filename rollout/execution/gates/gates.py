"""Where a rollout asks whether it may go on, and what its gates ask outside of the cluster."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from rollout.execution.base.deadline import Deadline
from rollout.execution.gates.checks import NodePlaybooks
from rollout.execution.node.context import NodeGates
from rollout.model.plan import PlannedNode, Wave


class Later(str):
    """A reason that passes by itself: a node that is not begun for it is for another time, and no trouble."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a node may not begin, empty where it may; `final` where no waiting will change that.

    `is_general`: it holds any other node as well, so that there is no use in asking about as many as there are.
    """

    why: str = ""
    final: bool = False
    is_general: bool = False


OPEN = Hold()


class Gates(NodeGates, Protocol):
    """Everything that can hold a rollout up: its start, its waves, its nodes."""

    def before_rollout(self) -> None:
        """Return where it may begin; `BlockedError` where not."""
        ...

    def before_wave(self, wave: Wave) -> str:
        """Why this wave may not begin; empty where it may."""
        ...

    def hold(self, node: PlannedNode) -> Hold:
        """Whether a node may begin now; asked again and again, so it never waits itself."""
        ...

    def refusal(self, node: PlannedNode) -> str:
        """Why a node may not begin now, empty where it may; asked right before its cordon, the slow questions first."""
        ...

    def soak(self, wave: Wave) -> bool:
        """Let time pass after a wave; whether any was asked for."""
        ...


@dataclass(frozen=True, slots=True)
class Condition:
    """What a node has to meet to begin, and to be cordoned; `is_bounded`: it is waited for up to gates.timeout."""

    ask: Callable[[PlannedNode], Hold]
    is_bounded: bool = False


class Remembered(Protocol):
    """What earlier rollouts, and people, have left that keeps nodes from beginning now."""

    def expire(self) -> None:
        """Forget what was read until now."""
        ...

    def why_paused(self) -> str:
        """Why no node at all may begin; empty where they may."""
        ...

    def why_held(self, planned: PlannedNode) -> str:
        """Why nodes with this one's staged version may not; empty where they may."""
        ...


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
