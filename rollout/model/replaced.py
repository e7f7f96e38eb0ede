"""Labels and annotations of others' that a node has for the time of its turn, and what stood there before.

They are written down on the Node beside our marks, so that whoever gives it back puts back what was there. Whoever may
write a Node's annotations could forge this one: it is obeyed for names alone that the rollout's own rules have.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec

from rollout.model import marks
from rollout.model.cluster import Node

_LONGEST = 8192
_Entries = dict[str, tuple[str, str | None]]
Values = Mapping[str, str | None]
"""Labels or annotations by name; None takes one away."""


@dataclass(frozen=True, slots=True)
class Fields:
    """Labels and annotations of a Node, to be written."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]


class Replaced(msgspec.Struct, frozen=True, omit_defaults=True):
    """By name: the value that was set, and the one before it, None where there was none."""

    labels: _Entries = {}
    annotations: _Entries = {}

    def restoring(self, node: Node, names: Collection[str]) -> tuple[Values, Values]:
        """What puts back these labels and annotations; what somebody else has changed meanwhile is theirs."""
        return (
            _restoring(self.labels, node.labels, names),
            _restoring(self.annotations, node.annotations, names),
        )


def replaced_on(node: Node) -> Replaced:
    """What is written down there, of its turn or of its wait for it; nothing where nothing legible is."""
    written = node.annotations.get(marks.REPLACED) or node.annotations.get(marks.ANNOUNCED, "{}")
    return parse_replaced(written) or Replaced()


def parse_replaced(text: str) -> Replaced | None:
    """None for what no rollout writes."""
    if len(text) > _LONGEST:
        return None
    try:
        return msgspec.json.decode(text, type=Replaced)
    except (msgspec.MsgspecError, RecursionError):
        return None


def replacing(node: Node, fields: Fields) -> str | None:
    """What is to be written down with these; None for nothing.

    What a failed run has set before, or an attempt whose answer was lost, keeps the value from before that.
    """
    known = replaced_on(node)
    replaced = Replaced(
        _replacing(known.labels, node.labels, fields.labels),
        _replacing(known.annotations, node.annotations, fields.annotations),
    )
    return None if replaced == Replaced() else msgspec.json.encode(replaced).decode()


def _replacing(known: _Entries, present: Mapping[str, str], values: Mapping[str, str]) -> _Entries:
    fresh = {
        name: (value, known[name][1] if name in known else present.get(name))
        for name, value in values.items()
        if name in known or present.get(name) != value
    }
    return {**known, **fresh}


def _restoring(entries: _Entries, present: Mapping[str, str], names: Collection[str]) -> Values:
    return {name: before for name, (value, before) in entries.items() if name in names and present.get(name) == value}
