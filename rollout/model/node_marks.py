"""Reads annotations on a Node.

Anyone who may change Nodes can write them. An invalid one prevents a start or a return.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.detection import UPDATE_SOURCES, Sign, Source, SourceAnswer, read_targets
from rollout.model.finding import (
    InvalidMark,
    MissingMark,
    NodePaused,
    PausedByAnnotation,
    UnknownMark,
)
from rollout.model.host import NO_VERSION, HostFacts, UpdateOperation
from rollout.model.json_text import read_json
from rollout.model.memory import Pause
from rollout.model.own_pods import read_ready
from rollout.model.progress import Phase
from rollout.model.text import is_run_id, is_version
from rollout.model.timestamps import parse_timestamp

# Enough for a label's key (317 characters).
_MOST_MARK_CHARACTERS = 320
_MOST_PAUSE_CHARACTERS = 2000
_COUNT = re.compile(r"[0-9]{1,6}")
# The longest wait between reboots, and a day for differing clocks.
_IN_A_ROW = timedelta(days=3)
_BOOT_ID = re.compile(r"[0-9A-Za-z._-]{1,128}")
# Done nodes have no annotation.
_WRITTEN_PHASES = frozenset(Phase) - {Phase.DONE}
_YES = frozenset({"true"})
UNCLEAR_HINT = (
    "Use the version of rollout that wrote it. Or look at the node, and remove its"
    " node-rollout.dev/ annotations manually: kubectl annotate node {name} NAME-"
)
_CHECKS = ("/before-reboot", "/after-reboot")


def has_marks(node: Node) -> bool:
    """Whether a rollout has yet to return the node."""
    return any(name in node.annotations for name in marks.TRANSIENT)


def annotation_problem(node: Node) -> UnknownMark | MissingMark | InvalidMark | None:
    """Return the first problem, or None."""
    for name in sorted(node.annotations):
        if name.startswith(marks.PREFIX) and name not in marks.ON_NODE:
            return UnknownMark(name)
    if not has_marks(node):
        return None
    for name in marks.TRANSIENT:
        value = node.annotations.get(name)
        if value is None:
            if name in _REQUIRED:
                return MissingMark(name)
            continue
        is_valid = _VALIDATORS.get(name, _is_text)
        if not is_valid(value):
            return InvalidMark(name, value)
    return None


def last_result(node: Node) -> Mapping[str, str]:
    """Return the last rollout's result, or nothing."""
    return _fields_of(node, marks.LAST_RESULT)


def is_returned_by(node: Node, run: str) -> bool:
    """Whether this rollout was the last, and has returned the node."""
    return marks.RUN not in node.annotations and last_result(node).get("run") == run


def announced_version(node: Node) -> str:
    """Return FLUO's staged version, or empty."""
    if node.annotations.get(marks.FLUO_STATUS) != UpdateOperation.NEED_REBOOT:
        return ""
    version = node.annotations.get(marks.FLUO_NEW_VERSION, "")
    if version == NO_VERSION or not is_version(version):
        return ""
    return version


def targets_on(node: Node) -> Mapping[Source, str]:
    """Return what sources must report afterwards."""
    return read_targets(node.annotations.get(marks.DETECTED, "{}")) or {}


def ineffective_reboots(node: Node) -> int:
    """Return how many in a row changed no version."""
    count = last_result(node).get("unmoved", "")
    return int(count) if _COUNT.fullmatch(count) else 0


def earlier_ineffective_reboots(node: Node, running_version: str, now: datetime | None) -> int:
    """Return how many in a row left this version running."""
    result = last_result(node)
    ended_at = parse_timestamp(result.get("at", ""))
    if ended_at is None or now is None:
        return 0
    # After three days, the reboot has another reason.
    if abs(now - ended_at) > _IN_A_ROW:
        return 0
    if result.get("version") != running_version:
        return 0
    return ineffective_reboots(node)


class Deferral(Struct, frozen=True):
    """Who left the node for later; unknown values are empty."""

    by: str = ""
    at: str = ""


def deferral_of(node: Node) -> Deferral | None:
    """Return the deferral, or None."""
    is_deferred = marks.DEFERRED in node.annotations or marks.DEFERRED in node.labels
    if not is_deferred:
        return None
    fields = _fields_of(node, marks.DEFERRED)
    return Deferral(fields.get("by", ""), fields.get("at", ""))


def _fields_of(node: Node, annotation: str) -> Mapping[str, str]:
    """Return texts; a newer version may write other values."""
    fields = read_json(node.annotations.get(annotation, "{}"), dict[str, Any]) or {}
    return {name: value for name, value in fields.items() if isinstance(value, str)}


def _is_text(value: str) -> bool:
    return len(value) <= _MOST_MARK_CHARACTERS and value.isprintable()


def is_check_label(value: str) -> bool:
    """Whether the label may request checks."""
    return len(value) <= _MOST_MARK_CHARACTERS and value.endswith(_CHECKS)


def _are_targets(value: str) -> bool:
    targets = read_targets(value)
    return targets is not None and all(map(_is_text, targets.values()))


_REQUIRED = frozenset({marks.RUN, marks.PHASE, marks.BOOT_ID_BEFORE})
_VALIDATORS: Mapping[str, Callable[[str], object]] = {
    marks.RUN: is_run_id,
    marks.PHASE: _WRITTEN_PHASES.__contains__,
    marks.BOOT_ID_BEFORE: _BOOT_ID.fullmatch,
    marks.RESCUED: _BOOT_ID.fullmatch,
    marks.CORDONED_BY_US: _YES.__contains__,
    marks.EXCLUDED_BY_US: _YES.__contains__,
    marks.HOOK_LABEL_ANNOTATION: is_check_label,
    marks.DETECTED: _are_targets,
    marks.READY_BEFORE: lambda value: read_ready(value) is not None,
}


def pause_on(node: Node) -> Pause | None:
    """Return the pause, even if over, or None."""
    if node.annotations.get(marks.PAUSED) != "true":
        return None
    details = node.annotations.get(marks.PAUSED_DETAILS, "{}")
    # The node is paused anyway.
    return read_json(details[:_MOST_PAUSE_CHARACTERS], Pause) or Pause()


def why_paused(node: Node, now: datetime | None) -> NodePaused | PausedByAnnotation | None:
    """Return what pauses the node; `now` is the API server's time."""
    pause = pause_on(node)
    if pause is not None and not pause.is_over(now):
        has_details = pause != Pause()
        return NodePaused(pause) if has_details else PausedByAnnotation(marks.PAUSED)
    for annotation in marks.RIVAL_PAUSES:
        if node.annotations.get(annotation) == "true":
            return PausedByAnnotation(annotation)
    return None


def has_grant(node: Node) -> bool:
    """Whether FleetLock has granted the reboot."""
    return node.annotations.get(marks.PHASE) == Phase.REBOOTING


def annotation_sign(node: Node) -> Sign:
    """Return what annotations say about a reboot."""
    source = Source.ANNOTATION
    value = node.annotations.get(marks.REBOOT_NEEDED, "false")
    if value not in {"true", "false"}:
        detail = f"its annotation {marks.REBOOT_NEEDED} is neither true nor false"
        return Sign(source, SourceAnswer.NONE, detail)
    names = requesting_annotations(node, marks.REQUESTS)
    if names:
        return Sign(source, SourceAnswer.NEEDED, f"annotation {', '.join(names)}")
    return Sign(source, SourceAnswer.NOT_NEEDED, "no annotation reboot-needed")


def requesting_annotations(node: Node, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return those that request a reboot."""
    return tuple(name for name in names if node.annotations.get(name) == "true")


_OTHERS = ", ".join(source for source in UPDATE_SOURCES if source is not Source.UPDATE_ENGINE)


def sources_not_asked(node: Node, facts: HostFacts) -> tuple[Source, ...]:
    """Return sources that exist, but were not asked."""
    if Source.ANNOTATION not in facts.sources and annotation_sign(node).is_needed:
        return (Source.ANNOTATION, *facts.unasked_sources)
    return facts.unasked_sources


def detect_flag(*sources: Source) -> str:
    """Return `--set detect.sources=rpm-ostree`."""
    return f"--set detect.sources={','.join(dict.fromkeys(sources))}"


def how_to_ask(facts: HostFacts) -> str:
    """Return how to ask other sources, or empty."""
    if facts.unasked_sources:
        flag = detect_flag(*facts.sources, *facts.unasked_sources)
        return f"it has {', '.join(facts.unasked_sources)}: {flag}"
    if facts.lacks_engine:
        return f"add another source to detect.sources: {_OTHERS}"
    return ""
