"""What holds a drain up, as Kubernetes Events on the Node: seen by `kubectl describe node`, by whoever looks there.

One Event a pod, brought up to date now and then. It is written beside the drain, which neither waits for it nor minds
whether it can be written.
"""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from rollout.errors import ApiConflictError, ApiError
from rollout.ports import ClusterApi

BLOCKED = "DrainBlocked"
# Events of objects without a namespace stand in this one.
EVENTS = "/api/v1/namespaces/default/events"

_COMPONENT = "node-rollout"


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
    """Writes the Events of one Node. Enter it to begin; leaving it drops what is not written yet."""

    def __init__(self, api: ClusterApi, node: str, node_uid: str, run: str) -> None:
        self._api = api
        self._node = node
        self._node_uid = node_uid
        self._run = run
        self._writer = ThreadPoolExecutor(1, thread_name_prefix=f"events-{node}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.shutdown(wait=False, cancel_futures=True)

    def blocked(self, note: BlockedNote) -> None:
        """Tell of a pod that is held back, in the background."""
        self._writer.submit(self._write, note)

    def _write(self, note: BlockedNote) -> None:
        name = f"{self._node}.{hashlib.sha256(f'{self._run}/{note.pod_uid}'.encode()).hexdigest()[:16]}"
        with suppress(ApiError):
            if note.count == 1:
                with suppress(ApiConflictError):
                    self._api.create(EVENTS, {**self._identity(name), **self._news(note)})
            else:
                self._api.patch(f"{EVENTS}/{name}", self._news(note))

    def _identity(self, name: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._node_uid},
            "reason": BLOCKED,
            "type": "Warning",
            "source": {"component": _COMPONENT},
            "reportingComponent": _COMPONENT,
            "reportingInstance": self._run,
        }

    def _news(self, note: BlockedNote) -> dict[str, Any]:
        return {
            "message": f"Pod {note.pod} {note.message}",
            "firstTimestamp": _written(note.since),
            "lastTimestamp": _written(note.at),
            "count": note.count,
        }


def _written(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
