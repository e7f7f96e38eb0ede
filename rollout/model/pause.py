"""The pause of a node, by its annotations.

`node-rollout.dev/paused: "true"` says it, as other reboot coordinators have theirs. Who paused the node, when, why and
until when stands beside it, where `rollout pause` has set it.
"""

from datetime import datetime

import msgspec

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.memory import Pause

_LONGEST = 2000


def pause_on(node: Node) -> Pause | None:
    """The pause that our annotation on a Node is, over or not; None where there is none."""
    if node.annotations.get(marks.PAUSED) != "true":
        return None
    written = node.annotations.get(marks.PAUSED_DETAILS, "{}")
    try:
        return msgspec.json.decode(written[:_LONGEST], type=Pause)
    except (msgspec.MsgspecError, RecursionError):
        return Pause()


def why_paused(node: Node, now: datetime | None) -> str:
    """Why no rollout may begin this node, by whose annotation; empty where it may. `now` by the API server's clock."""
    pause = pause_on(node)
    if pause is not None and not pause.is_over(now):
        return f"paused by its annotation {marks.PAUSED}" if pause == Pause() else str(pause)
    for annotation in marks.RIVAL_PAUSES:
        if node.annotations.get(annotation) == "true":
            return f"paused by its annotation {annotation}"
    return ""
