"""The marks of a rollout on a Node, judged before anything is done by them; and its pause.

Whoever may change Nodes, a kubelet of its own included, can write there; so can another version of
this program. What is not understood is neither a node that nobody has begun nor one that may be
given back.

`node-rollout.dev/paused: "true"` pauses a node, as other reboot coordinators have theirs. Who
paused it, when, why and until when stands beside it, where `rollout pause` has set it.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.detection import Source, read_targets
from rollout.model.finding import (
    InvalidMark,
    MissingMark,
    NodePaused,
    PausedByAnnotation,
    UnknownMark,
)
from rollout.model.json_text import read_json
from rollout.model.memory import Pause
from rollout.model.own_pods import read_ready
from rollout.model.progress import Phase
from rollout.model.text import is_run_id
from rollout.model.timestamps import parse_timestamp

# In characters: of a mark, as the key of a label may be long, and of what stands beside a pause.
_LONGEST_MARK = 320
_LONGEST_PAUSE = 2000
_COUNT = re.compile(r"[0-9]{1,6}")
# As long as the longest rest between two attempts, and a clock that is a day off.
_IN_A_ROW = timedelta(days=3)
_BOOT_ID = re.compile(r"[0-9A-Za-z._-]{1,128}")
# A mark is there from right before the cordon on, and goes with the node's success.
_WRITTEN_PHASES = frozenset(Phase) - {Phase.DONE}
_YES = frozenset({"true"})
UNCLEAR_HINT = (
    "Go on with the version of rollout that wrote it; or look at the node, and remove its"
    " node-rollout.dev/ annotations by hand: kubectl annotate node {name} NAME-"
)
_CHECKS = ("/before-reboot", "/after-reboot")


def is_begun(node: Node) -> bool:
    """Whether any mark of a rollout under way, or of a failed one, stands on it."""
    return any(name in node.annotations for name in marks.TRANSIENT)


def annotation_problem(node: Node) -> UnknownMark | MissingMark | InvalidMark | None:
    """Return which annotation of rollout is not understood; None if all are."""
    ours = (name for name in node.annotations if name.startswith(marks.PREFIX))
    if unknown := min((name for name in ours if name not in marks.ON_NODE), default=""):
        return UnknownMark(unknown)
    for name in marks.TRANSIENT if is_begun(node) else ():
        value = node.annotations.get(name)
        if value is None and name in _NEEDED:
            return MissingMark(name)
        if value is not None and not _SOUND.get(name, _is_text)(value):
            return InvalidMark(name, value)
    return None


def last_result(node: Node) -> Mapping[str, str]:
    """Return what the last rollout wrote of the node's end; empty where nothing legible stands there."""
    return _fields_of(node, marks.LAST_RESULT)


def targets_on(node: Node) -> Mapping[Source, str]:
    """Return what the sources that asked for its reboot have to be shown after it; empty where none is legible."""
    return read_targets(node.annotations.get(marks.DETECTED, "{}")) or {}


def ineffective_reboots(node: Node) -> int:
    """How many reboots in a row, by its last result, its host had asked for and was on the same version after."""
    count = last_result(node).get("unmoved", "")
    return int(count) if _COUNT.fullmatch(count) else 0


def ineffective_reboots_before(node: Node, version: str, now: datetime | None) -> int:
    """Return the same of a node that ran this version before its reboot; 0 where the last was days ago.

    A host may be rebooted now and then for other reasons than an update.
    """
    result = last_result(node)
    at = parse_timestamp(result.get("at", ""))
    is_in_a_row = at is not None and now is not None and abs(now - at) <= _IN_A_ROW
    return ineffective_reboots(node) if is_in_a_row and result.get("version") == version else 0


def deferral(node: Node) -> Mapping[str, str]:
    """Of a node that was left for a run from elsewhere: by whom, and since when; empty where nothing legible is."""
    return _fields_of(node, marks.DEFERRED)


def is_deferred(node: Node) -> bool:
    """Whether it was left for a run from elsewhere."""
    return marks.DEFERRED in node.annotations or marks.DEFERRED in node.labels


def _fields_of(node: Node, annotation: str) -> Mapping[str, str]:
    """Its texts; what a newer version has added to them may be anything, and takes none of them away."""
    written = read_json(node.annotations.get(annotation, "{}"), dict[str, Any]) or {}
    return {name: value for name, value in written.items() if isinstance(value, str)}


def _is_text(value: str) -> bool:
    return len(value) <= _LONGEST_MARK and value.isprintable()


def _is_check(value: str) -> bool:
    return len(value) <= _LONGEST_MARK and value.endswith(_CHECKS)


def _is_detected(value: str) -> bool:
    targets = read_targets(value)
    return targets is not None and all(map(_is_text, targets.values()))


_NEEDED = frozenset({marks.RUN, marks.PHASE, marks.BOOT_ID_BEFORE})
_SOUND: Mapping[str, Callable[[str], object]] = {
    marks.RUN: is_run_id,
    marks.PHASE: _WRITTEN_PHASES.__contains__,
    marks.BOOT_ID_BEFORE: _BOOT_ID.fullmatch,
    marks.CORDONED_BY_US: _YES.__contains__,
    marks.EXCLUDED_BY_US: _YES.__contains__,
    marks.HOOK_LABEL: _is_check,
    marks.DETECTED: _is_detected,
    marks.READY_BEFORE: lambda value: read_ready(value) is not None,
}


def pause_on(node: Node) -> Pause | None:
    """Return the pause that our annotation on a Node is, over or not; None where there is none."""
    if node.annotations.get(marks.PAUSED) != "true":
        return None
    return (
        read_json(node.annotations.get(marks.PAUSED_DETAILS, "{}")[:_LONGEST_PAUSE], Pause)
        or Pause()
    )


def why_paused(node: Node, now: datetime | None) -> NodePaused | PausedByAnnotation | None:
    """Return which annotation keeps rollouts from the node; `now` is the API server's time."""
    pause = pause_on(node)
    if pause is not None and not pause.is_over(now):
        return PausedByAnnotation(marks.PAUSED) if pause == Pause() else NodePaused(pause)
    for annotation in marks.RIVAL_PAUSES:
        if node.annotations.get(annotation) == "true":
            return PausedByAnnotation(annotation)
    return None
