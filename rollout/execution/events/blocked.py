"""What holds a drain up, as Kubernetes Events on the Node: seen by `kubectl describe node`, by whoever looks there.

One Event a pod, brought up to date now and then. It is written beside the drain, which neither waits for it nor minds
whether it can be written.
"""

from dataclasses import dataclass
from datetime import datetime

from rollout.execution.events.writer import EventWriter, NodeNote

BLOCKED = "DrainBlocked"
NO_BUDGET = "the API server"
ANY_BUDGET = "a disruption budget"


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
