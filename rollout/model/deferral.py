"""What is written on a node that is left for a run from elsewhere, and taken away again, as patches of the Node.

The soft taint and the label keep the next run's pod away from it where there is another place; neither keeps a pod
away for good. A cordon would, and would cost the cluster a node until the next run.
"""

from typing import Any

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.json_text import json_line
from rollout.model.replaced import Fields, replaced_on, replacing
from rollout.model.soft_taint import with_soft_taint, without_soft_taint

Patch = dict[str, Any]


def deferred(node: Node, by: str, at: str, *, taint: bool) -> Patch | None:
    """The marks, and the soft taint where it is wanted; None where all of it stands there, of whichever run."""
    patch: Patch = {}
    if marks.DEFERRED not in node.annotations:
        patch["metadata"] = {"annotations": {marks.DEFERRED: json_line({"by": by, "at": at}).decode()}}
    if node.labels.get(marks.DEFERRED) != "true":
        patch.setdefault("metadata", {})["labels"] = {marks.DEFERRED: "true"}
    if taint and (taints := with_soft_taint(node)) is not None:
        patch["spec"] = {"taints": taints}
    return patch or None


def announcing(node: Node, fields: Fields) -> Patch | None:
    """What others are told of a node that waits; None where they are told already, or it waits no more."""
    is_told = fields.labels.items() <= node.labels.items() and fields.annotations.items() <= node.annotations.items()
    if is_told or marks.RUN in node.annotations:
        return None
    annotations = {**fields.annotations, marks.ANNOUNCED: replacing(node, fields)}
    return {"metadata": {"labels": dict(fields.labels), "annotations": annotations}}


def taken_back(node: Node) -> Patch | None:
    """The node without marks and soft taint, and others told no more; None where it has none of them."""
    places = {"annotations": node.annotations, "labels": node.labels}
    marked: dict[str, Any] = {
        place: {marks.DEFERRED: None} for place, present in places.items() if marks.DEFERRED in present
    }
    if marks.ANNOUNCED in node.annotations:
        labels, annotations = replaced_on(node).restoring(node, marks.COMPAT)
        marked["labels"] = {**marked.get("labels", {}), **labels}
        marked["annotations"] = {**marked.get("annotations", {}), **annotations, marks.ANNOUNCED: None}
    patch: Patch = {"metadata": marked} if marked else {}
    if (taints := without_soft_taint(node)) is not None:
        patch["spec"] = {"taints": taints or None}
    return patch or None
