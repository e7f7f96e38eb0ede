"""What is written on a Node for others to read: the operator's labels, and what other coordinators' dashboards know.

Of FLUO's and kured's words none is written by which they, or this program, would take a node for one in their hands:
`reboot-ok` and `reboot-in-progress` of FLUO are left out, and kured's mark is known for ours by what stands beside it.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

from rollout.model import marks
from rollout.model.courtesy import Compat, CourtesyPolicy
from rollout.model.host import HostFacts, UpdateOperation
from rollout.model.replaced import Fields
from rollout.planning.node_labels import is_label_value, node_labels

_STATUS, _NEW_VERSION, _CHECKED, _NEEDED, _ID, _GROUP, _VERSION = (
    marks.FLUO_PREFIX + word
    for word in ("status", "new-version", "last-checked-time", "reboot-needed", "id", "group", "version")
)
# What update_engine reports where nothing is staged.
_NO_VERSION = "0.0.0"
# What keeps telling the truth once a node is done.
LASTING = frozenset({_CHECKED, _ID, _GROUP, marks.KURED_NEEDED})
_OF_COMPAT = LASTING | {_STATUS, _NEW_VERSION, _NEEDED, _VERSION, marks.KURED_IN_PROGRESS}


def own_names(courtesy: CourtesyPolicy) -> frozenset[str]:
    """The labels and annotations that a node may have got by these rules, or by others of this program."""
    return _OF_COMPAT | node_labels(courtesy.pre_reboot_node_labels).keys()


def announced(courtesy: CourtesyPolicy, facts: HostFacts | None, now: datetime) -> Fields:
    """What a node has from its cordon on; without facts, as a FleetLock server has none, no more than that."""
    labels = dict(node_labels(courtesy.pre_reboot_node_labels))
    annotations: dict[str, str] = {}
    if Compat.FLUO in courtesy.annotate_compat:
        labels |= dict(_labels(facts)) if facts else {_NEEDED: "true"}
        annotations[_NEEDED] = "true"
    if Compat.FLUO in courtesy.annotate_compat and facts:
        annotations |= {
            _STATUS: facts.update.operation.value,
            _NEW_VERSION: facts.update.new_version or _NO_VERSION,
            _CHECKED: str(facts.update.last_checked),
        }
    if Compat.KURED in courtesy.annotate_compat:
        at = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        annotations |= {marks.KURED_IN_PROGRESS: at, marks.KURED_NEEDED: at}
    return Fields(labels, annotations)


def settled(courtesy: CourtesyPolicy, version: str) -> Fields:
    """What a node has that is rebooted and proven, and runs this version; for as long as nobody changes it."""
    labels = dict(node_labels(courtesy.post_reboot_node_labels))
    annotations: dict[str, str] = {}
    if Compat.FLUO in courtesy.annotate_compat:
        labels |= {_NEEDED: "false", **({_VERSION: version} if version and is_label_value(version) else {})}
        annotations |= {_STATUS: UpdateOperation.IDLE.value, _NEW_VERSION: _NO_VERSION, _NEEDED: "false"}
    return Fields(labels, annotations)


def _labels(facts: HostFacts) -> Iterator[tuple[str, str]]:
    """What the host said that a label can hold."""
    said = ((_ID, facts.os_id), (_GROUP, facts.group), (_VERSION, facts.running_version), (_NEEDED, "true"))
    return ((name, value) for name, value in said if value and is_label_value(value))
