"""Watches the Node in progress, which others may delete at any time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rollout.execution.base.deadline import Deadline, PatientApi
from rollout.execution.base.live_view import LiveView, watch_node
from rollout.execution.drain.task import NodeTask
from rollout.model import node_kind
from rollout.model.cluster import Node
from rollout.wording import text

_FOREVER = 10.0 * 365 * 24 * 3600


@dataclass(slots=True)
class WatchedNode:
    """A deleted Node may be registered again with another UID."""

    view: LiveView[Node]
    # Of the planned Node; empty if unknown.
    uid: str
    # The planned Node, even if it is deleted now.
    last_seen: Node | None = None

    @property
    def is_absent(self) -> bool:
        return self._is_known and not self._nodes()

    @property
    def _is_known(self) -> bool:
        return self.view.generation > 0

    @property
    def why_removed(self) -> str:
        """Empty if the planned Node stays, or is unknown."""
        if not self._is_known:
            return ""
        planned = self._planned_node()
        if planned is None:
            return "its Node was deleted"
        removal = node_kind.why_removed(planned)
        return text(removal) if removal else ""

    @property
    def is_uncordoned(self) -> bool:
        planned = self._planned_node()
        return planned is not None and not planned.unschedulable

    @property
    def boot_id(self) -> str:
        """As the kubelet has reported; empty if unknown."""
        return next((node.boot_id for node in self._nodes()), "")

    def await_other_boot(self, boot_id: str, deadline: Deadline) -> None:
        while not deadline.expired:
            # A change after the look must end the sleep.
            self.view.changed.clear()
            if self.boot_id != boot_id:
                return
            deadline.sleep_unless(self.view.changed)

    def _planned_node(self) -> Node | None:
        return next(filter(self._is_planned, self._nodes()), None)

    def _nodes(self) -> tuple[Node, ...]:
        nodes = self.view.items()
        self.last_seen = next(filter(self._is_planned, nodes), self.last_seen)
        return nodes

    def _is_planned(self, node: Node) -> bool:
        return self.uid in ("", node.uid)


@contextmanager
def watched_node(task: NodeTask) -> Iterator[WatchedNode]:
    # The steps that wait for the API server report its outages.
    silent = PatientApi(task.cluster.api, task.cluster.clock)
    with watch_node(silent, task.name, silent.deadline(_FOREVER), lists_first=False) as view:
        yield WatchedNode(view, task.planned.node_uid)
