"""The soft taint on pending nodes, and deferred nodes' label."""

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
    """Return a patch; empty if the taint is taken."""
    # Each pair is unique on a Node.
    taken = {(taint.key, taint.effect) for taint in node.taints}
    if (AWAITING_REBOOT.key, AWAITING_REBOOT.effect) in taken:
        return {}
    return _taints_patch([*node.taints, AWAITING_REBOOT])


def soft_taint_removal_patch(node: Node) -> Patch:
    """Return a patch; empty without the taint."""
    if not has_soft_taint(node):
        return {}
    return _taints_patch([taint for taint in node.taints if not _is_ours(taint)])


def _is_ours(taint: Taint) -> bool:
    return structs.replace(taint, time_added="") == AWAITING_REBOOT


def _taints_patch(taints: Sequence[Taint]) -> Patch:
    """Patch the whole list, because the API cannot merge taints."""
    return {"taints": to_builtins(taints) or None}


def deferral_patch(node: Node, by: str, at: str, *, taint: bool) -> Patch | None:
    """Return a patch; None if marked."""
    metadata: Patch = {}
    if marks.DEFERRED not in node.annotations:
        details = json_line({"by": by, "at": at}).decode()
        metadata["annotations"] = {marks.DEFERRED: details}
    if node.labels.get(marks.DEFERRED) != "true":
        metadata["labels"] = {marks.DEFERRED: "true"}
    return _node_patch(metadata, soft_taint_patch(node) if taint else {})


def undo_deferral_patch(node: Node) -> Patch | None:
    """Return a patch; None without marks."""
    metadata: Patch = {}
    if marks.DEFERRED in node.annotations:
        metadata["annotations"] = {marks.DEFERRED: None}
    if marks.DEFERRED in node.labels:
        metadata["labels"] = {marks.DEFERRED: None}
    return _node_patch(metadata, soft_taint_removal_patch(node))


def _node_patch(metadata: Patch, spec: Patch) -> Patch | None:
    patch: Patch = {}
    if metadata:
        patch["metadata"] = metadata
    if spec:
        patch["spec"] = spec
    return patch or None
