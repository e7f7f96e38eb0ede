"""Where a rollout asks whether it may go on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rollout.execution.node.context import NodeContext, NodeGates
from rollout.gather.hosts.boot import BootFacts
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
        """What was read until now does not count any more."""
        ...

    def why_paused(self) -> str:
        """Why no node at all may begin; empty where they may."""
        ...

    def why_held(self, planned: PlannedNode) -> str:
        """Why nodes with this one's staged version may not; empty where they may."""
        ...


class NothingRemembered:
    """Nothing is held against any node."""

    def expire(self) -> None:
        """Nothing was read."""

    def why_paused(self) -> str:
        """They may begin."""
        return ""

    def why_held(self, planned: PlannedNode) -> str:  # noqa: ARG002 - the protocol's
        """It may begin."""
        return ""


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

    def refusal(self, node: PlannedNode) -> str:  # noqa: ARG002 - the protocol's
        """It may."""
        return ""

    def before_node(self, context: NodeContext) -> None:
        """It may."""

    def before_drain(self, context: NodeContext) -> None:
        """It may."""

    def after_waiting(self, context: NodeContext, when: str) -> None:
        """It may."""

    def before_reboot(self, context: NodeContext) -> None:
        """It may."""

    def after_reboot(self, context: NodeContext, boot: BootFacts) -> None:
        """It may."""

    def soak(self, wave: Wave) -> bool:  # noqa: ARG002 - the protocol's
        """None was asked for."""
        return False
