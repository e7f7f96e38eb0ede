"""The soft taint on pending nodes, which the scheduler then avoids, and a deferred node's label."""

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
    """Whether the node has rollout's soft taint."""
    return any(_is_ours(taint) for taint in node.taints)


def soft_taint_patch(node: Node) -> Patch:
    """Return the patch that adds the soft taint; empty if its key and effect are taken."""
    # A Node cannot have two taints of the same key and effect.
    taken = {(taint.key, taint.effect) for taint in node.taints}
    if (AWAITING_REBOOT.key, AWAITING_REBOOT.effect) in taken:
        return {}
    return _taints_patch([*node.taints, AWAITING_REBOOT])


def soft_taint_removal_patch(node: Node) -> Patch:
    """Return the patch that removes the soft taint; empty without it."""
    if not has_soft_taint(node):
        return {}
    return _taints_patch([taint for taint in node.taints if not _is_ours(taint)])


def _is_ours(taint: Taint) -> bool:
    return structs.replace(taint, time_added="") == AWAITING_REBOOT


def _taints_patch(taints: Sequence[Taint]) -> Patch:
    """Return a patch of the whole list, because the API cannot merge taints."""
    return {"taints": to_builtins(taints) or None}


def deferral_patch(node: Node, by: str, at: str, *, taint: bool) -> Patch | None:
    """Return the patch that marks a deferred node; None if it is marked."""
    metadata: Patch = {}
    if marks.DEFERRED not in node.annotations:
        details = json_line({"by": by, "at": at}).decode()
        metadata["annotations"] = {marks.DEFERRED: details}
    if node.labels.get(marks.DEFERRED) != "true":
        metadata["labels"] = {marks.DEFERRED: "true"}
    return _node_patch(metadata, soft_taint_patch(node) if taint else {})


def undo_deferral_patch(node: Node) -> Patch | None:
    """Return the patch that removes a deferral's marks; None without them."""
    metadata: Patch = {}
    if marks.DEFERRED in node.annotations:
        metadata["annotations"] = {marks.DEFERRED: None}
    if marks.DEFERRED in node.labels:
        metadata["labels"] = {marks.DEFERRED: None}
    return _node_patch(metadata, soft_taint_removal_patch(node))


def _node_patch(metadata: Patch, spec: Patch) -> Patch | None:
    """Return the patch of a Node; None if it changes nothing."""
    patch: Patch = {}
    if metadata:
        patch["metadata"] = metadata
    if spec:
        patch["spec"] = spec
    return patch or None
