"""Begun nodes that a process cannot go on with: their cordons and marks stay, and they count as away and as failed."""

from collections.abc import Container, Iterable, Iterator

from rollout.execution.record.unfinished import Begun, Unfinished
from rollout.model.node_marks import UNCLEAR_HINT
from rollout.model.progress import NodeResult, Outcome, Phase

_STAYS = "its cordon and its marks stay"
_NO_HOST = "Add its host to the inventory (-i) and run rollout resume again, or give it back with rollout abort."
_NOT_OURS = "Give it back with rollout abort, which undoes this rollout as well; or look at the node."


def stranded(unfinished: Unfinished, begun: Iterable[Begun], hosts: Container[str]) -> tuple[NodeResult, ...]:
    """The ends of those among the `begun` nodes that cannot be taken on, and of all whose marks are not understood.

    `hosts` are the Nodes for which a host is known.
    """
    return (*_unclear(unfinished), *_left(unfinished, begun, hosts))


def _unclear(unfinished: Unfinished) -> Iterator[NodeResult]:
    for name, why in unfinished.unclear.items():
        hint = UNCLEAR_HINT.format(name=name)
        yield _result(name, Phase.FAILED, f"its marks are not understood: {why}", hint)


def _left(unfinished: Unfinished, begun: Iterable[Begun], hosts: Container[str]) -> Iterator[NodeResult]:
    planned = {node.name for node in unfinished.record.plan.nodes} if unfinished.record.plan else None
    for entry in begun:
        name = entry.node.name
        if planned is not None and entry.phase is not Phase.FAILED and entry.run != unfinished.record.run:
            message = f"it was started by rollout {entry.run}, and the record is of another rollout"
            yield _result(name, entry.phase, message, _NOT_OURS)
        elif planned is not None and entry.phase is not Phase.FAILED and name not in planned:
            yield _result(name, entry.phase, "it carries the rollout's marks, but is not in its plan", _NOT_OURS)
        elif name not in hosts:
            yield _result(name, entry.phase, "it was started, but no host is known for it now", _NO_HOST)


def _result(name: str, phase: Phase, why: str, hint: str) -> NodeResult:
    return NodeResult(name, Outcome.STRANDED, phase, 0.0, f"{why}; {_STAYS}", hint, left_cordoned=True)
