"""The soft taint on nodes that wait for their turn: schedulers give them pods only where no other node suits better.

Ours is told by all that it is: key, effect, and no value. A taint of the same key with any other is
somebody else's.

A node that is left for a run from elsewhere is marked besides: taint and label keep the next run's
pod away from it where there is another place, and neither for good. A cordon would, and would cost
the cluster a node until that run.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import structs, to_builtins

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.json_text import json_line
from rollout.model.placement import Taint

AWAITING_REBOOT = Taint(marks.AWAITING_REBOOT, "", "PreferNoSchedule")

Patch = dict[str, Any]


def has_soft_taint(node: Node) -> bool:
    """Whether our taint stands on it."""
    return any(map(_is_ours, node.taints))


def with_soft_taint(node: Node) -> Patch:
    """Return what is to be written of its spec for ours to stand on it, too; empty for nothing.

    One of somebody else's with our key and effect stays alone: the API takes no two of these.
    """
    identities = {(taint.key, taint.effect) for taint in node.taints}
    if (AWAITING_REBOOT.key, AWAITING_REBOOT.effect) in identities:
        return {}
    return _taints_patch([*node.taints, AWAITING_REBOOT])


def without_soft_taint(node: Node) -> Patch:
    """Return what is to be written of its spec for ours to be gone; empty for nothing."""
    if not has_soft_taint(node):
        return {}
    return _taints_patch([taint for taint in node.taints if not _is_ours(taint)])


def _is_ours(taint: Taint) -> bool:
    return structs.replace(taint, time_added="") == AWAITING_REBOOT


def _taints_patch(taints: Sequence[Taint]) -> Patch:
    """As the API takes them: only as a whole, for their list has no merge key."""
    return {"taints": to_builtins(taints) or None}


def deferral_patch(node: Node, by: str, at: str, *, taint: bool) -> Patch | None:
    """Return the marks, and the soft taint where it is wanted; None where all of it stands there, of whichever run."""
    patch: Patch = {}
    if marks.DEFERRED not in node.annotations:
        patch["metadata"] = {
            "annotations": {marks.DEFERRED: json_line({"by": by, "at": at}).decode()}
        }
    if node.labels.get(marks.DEFERRED) != "true":
        patch.setdefault("metadata", {})["labels"] = {marks.DEFERRED: "true"}
    if taint and (spec := with_soft_taint(node)):
        patch["spec"] = spec
    return patch or None


def undo_deferral_patch(node: Node) -> Patch | None:
    """Return the node without these marks and the soft taint; None where it has none of them."""
    places = {"annotations": node.annotations, "labels": node.labels}
    marked = {
        place: {marks.DEFERRED: None}
        for place, present in places.items()
        if marks.DEFERRED in present
    }
    patch: Patch = {"metadata": marked} if marked else {}
    if spec := without_soft_taint(node):
        patch["spec"] = spec
    return patch or None
