"""Labels that a node has for the time of its turn, and what stood there before.

They are written down on the Node beside our marks, so that whoever gives it back puts back what was there. Whoever may
write a Node's annotations could forge this one: it is obeyed for names alone that the rollout's own rules have.
"""

from collections.abc import Collection, Mapping

import msgspec

from rollout.model import marks
from rollout.model.cluster import Node

_LONGEST = 8192
_Entries = dict[str, tuple[str, str | None]]
Values = Mapping[str, str | None]
"""Labels by name; None takes one away."""


class Replaced(msgspec.Struct, frozen=True, omit_defaults=True):
    """By name: the value that was set, and the one before it, None where there was none."""

    labels: _Entries = {}

    def restoring(self, node: Node, names: Collection[str]) -> Values:
        """Return what puts back the labels of these names; what somebody else has changed meanwhile is theirs."""
        return {
            name: before
            for name, (value, before) in self.labels.items()
            if name in names and node.labels.get(name) == value
        }


def replaced_on(node: Node) -> Replaced:
    """Return what is written down there; nothing where nothing legible is."""
    return parse_replaced(node.annotations.get(marks.REPLACED, "{}")) or Replaced()


def parse_replaced(text: str) -> Replaced | None:
    """Return None for what no rollout writes."""
    if len(text) > _LONGEST:
        return None
    try:
        return msgspec.json.decode(text, type=Replaced)
    except (msgspec.MsgspecError, RecursionError):
        return None


def replacing(node: Node, labels: Mapping[str, str]) -> str | None:
    """Return what is to be written down with these labels; None for nothing.

    What a failed run has set before, or an attempt whose answer was lost, keeps the value from before that.
    """
    known = replaced_on(node).labels
    fresh = {
        name: (value, known[name][1] if name in known else node.labels.get(name))
        for name, value in labels.items()
        if name in known or node.labels.get(name) != value
    }
    replaced = Replaced({**known, **fresh})
    return None if replaced == Replaced() else msgspec.json.encode(replaced).decode()
