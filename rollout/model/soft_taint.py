"""The soft taint on nodes that wait for their turn: schedulers give them pods only where no other node suits better.

Ours is told by all that it is: key, effect, and no value. A taint of the same key with any other is somebody else's.

A node that is left for a run from elsewhere is marked besides: taint and label keep the next run's pod away from it
where there is another place, and neither for good. A cordon would, and would cost the cluster a node until that run.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import structs, to_builtins

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.json_text import json_line
from rollout.model.placement import Taint

AWAITING_REBOOT = Taint(marks.AWAITING_REBOOT, "", "PreferNoSchedule")

Written = list[dict[str, str]]
"""A Node's taints as the API takes them. It takes them only as a whole: their list has no merge key."""
Patch = dict[str, Any]


def has_soft_taint(node: Node) -> bool:
    """Whether our taint stands on it."""
    return any(map(_is_ours, node.taints))


def with_soft_taint(node: Node) -> Written | None:
    """All its taints and ours; None where nothing is to be written.

    One of somebody else's with our key and effect stays alone: the API takes no two of these.
    """
    identities = {(taint.key, taint.effect) for taint in node.taints}
    if (AWAITING_REBOOT.key, AWAITING_REBOOT.effect) in identities:
        return None
    return _written([*node.taints, AWAITING_REBOOT])


def without_soft_taint(node: Node) -> Written | None:
    """All its taints but ours; None where nothing is to be written."""
    if not has_soft_taint(node):
        return None
    return _written([taint for taint in node.taints if not _is_ours(taint)])


def _is_ours(taint: Taint) -> bool:
    return structs.replace(taint, time_added="") == AWAITING_REBOOT


def _written(taints: Sequence[Taint]) -> Written:
    written: Written = to_builtins(taints)
    return written


def deferred(node: Node, by: str, at: str, *, taint: bool) -> Patch | None:
    """Return the marks, and the soft taint where it is wanted; None where all of it stands there, of whichever run."""
    patch: Patch = {}
    if marks.DEFERRED not in node.annotations:
        patch["metadata"] = {"annotations": {marks.DEFERRED: json_line({"by": by, "at": at}).decode()}}
    if node.labels.get(marks.DEFERRED) != "true":
        patch.setdefault("metadata", {})["labels"] = {marks.DEFERRED: "true"}
    if taint and (taints := with_soft_taint(node)) is not None:
        patch["spec"] = {"taints": taints}
    return patch or None


def taken_back(node: Node) -> Patch | None:
    """Return the node without these marks and the soft taint; None where it has none of them."""
    places = {"annotations": node.annotations, "labels": node.labels}
    marked = {place: {marks.DEFERRED: None} for place, present in places.items() if marks.DEFERRED in present}
    patch: Patch = {"metadata": marked} if marked else {}
    if (taints := without_soft_taint(node)) is not None:
        patch["spec"] = {"taints": taints or None}
    return patch or None
