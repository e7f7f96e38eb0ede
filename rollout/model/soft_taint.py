"""The soft taint on nodes that wait for their turn: schedulers give them pods only where no other node suits better.

Ours is told by all that it is: key, effect, and no value. A taint of the same key with any other is somebody else's.
"""

from collections.abc import Iterable, Mapping

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.placement import Taint

AWAITING_REBOOT = Taint(marks.AWAITING_REBOOT, "", "PreferNoSchedule")

Written = list[dict[str, str]]
"""A Node's taints as the API takes them. It takes them only as a whole: their list has no merge key."""


def has_soft_taint(node: Node) -> bool:
    """Whether our taint stands on it."""
    return AWAITING_REBOOT in node.taints


def with_soft_taint(node: Node) -> Written | None:
    """All its taints and ours; None where nothing is to be written.

    One of somebody else's with our key and effect stays alone: the API takes no two of these.
    """
    identities = {(taint.key, taint.effect) for taint in node.taints}
    if (AWAITING_REBOOT.key, AWAITING_REBOOT.effect) in identities:
        return None
    return _written((*node.taints, AWAITING_REBOOT))


def without_soft_taint(node: Node) -> Written | None:
    """All its taints but ours; None where nothing is to be written."""
    if not has_soft_taint(node):
        return None
    return _written(taint for taint in node.taints if taint != AWAITING_REBOOT)


def _written(taints: Iterable[Taint]) -> Written:
    return [{name: value for name, value in _fields(taint).items() if value} for taint in taints]


def _fields(taint: Taint) -> Mapping[str, str]:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect, "timeAdded": taint.time_added}
