"""What holds a drain up, as Kubernetes Events on the Node: seen by `kubectl describe node`, by whoever looks there.

One Event a pod, brought up to date now and then. It is written beside the drain, which neither waits for it nor minds
whether it can be written.
"""

import re
from dataclasses import dataclass
from datetime import datetime

from rollout.execution.events.writer import EventWriter, NodeNote

BLOCKED = "DrainBlocked"
NO_BUDGET = "the API server"
ANY_BUDGET = "a disruption budget"
_HOLD = re.compile(
    r"Pod (?P<pod>\S+) is held back by (?P<by>.*?)"
    r"(?:, which needs (?P<needs>\d+) healthy pods and has (?P<has>\d+)|: (?P<message>.*))",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class BlockedNote:
    """What is told of one pod; `count` is how often it has been."""

    pod: str
    pod_uid: str
    message: str
    since: datetime
    at: datetime
    count: int


class NodeEvents:
    """Has the Events of one Node's drain written, as of the run whose marks it carries."""

    def __init__(self, writer: EventWriter, node: str, node_uid: str, run: str) -> None:
        self._writer = writer
        self._node = node
        self._node_uid = node_uid
        self._run = run

    def blocked(self, note: BlockedNote) -> None:
        """Tell of a pod that is held back, in the background."""
        message = f"Pod {note.pod} {note.message}"
        about = f"{BLOCKED}/{note.pod_uid}"
        self._writer.tell(
            NodeNote(self._node, self._node_uid, about, BLOCKED, message, note.at, note.since, True, self._run)
        )


@dataclass(frozen=True, slots=True)
class Hold:
    """What such an Event tells: the budget, empty where it is none or not named, and what it needs and has."""

    pod: str
    budget: str
    message: str
    needs: int | None = None
    has: int | None = None


def hold_told(message: str) -> Hold | None:
    """The hold that an Event tells of; None of one that is over, or is not understood."""
    match = _HOLD.fullmatch(message)
    if match is None:
        return None
    budget = "" if match["by"] in (NO_BUDGET, ANY_BUDGET) else match["by"]
    if match["needs"] is None:
        return Hold(match["pod"], budget, match["message"])
    needs, has = int(match["needs"]), int(match["has"])
    return Hold(match["pod"], budget, f"needs {needs} healthy pods and has {has}", needs, has)
