"""What is written on a Node for others to read: the operator's labels, and what other coordinators' dashboards know.

Of FLUO's and kured's words none is written by which they, or this program, would take a node for one in their hands:
`reboot-ok` and `reboot-in-progress` of FLUO are left out, and kured's mark is known for ours by what stands beside it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from rollout.model import marks
from rollout.model.courtesy import Compat, CourtesyPolicy
from rollout.model.host import NO_VERSION, HostFacts, UpdateOperation
from rollout.model.plan import PlannedNode
from rollout.model.replaced import Fields
from rollout.planning.selector import is_label_value, node_labels


def own_names(courtesy: CourtesyPolicy) -> frozenset[str]:
    """The labels and annotations that a node may have got by these rules, or by others of this program."""
    return marks.COMPAT | node_labels(courtesy.pre_reboot_node_labels).keys()


def waiting(courtesy: CourtesyPolicy, planned: PlannedNode, now: datetime) -> Fields:
    """What a planned node has until its turn; more of its host is known only then."""
    operation = UpdateOperation.NEED_REBOOT if planned.staged else UpdateOperation.IDLE
    fluo = _fluo({marks.FLUO_VERSION: planned.running_version}, operation, planned.staged_version, needed="true")
    return _joined(courtesy, fluo, {marks.KURED_NEEDED: _written(now)})


def announced(courtesy: CourtesyPolicy, facts: HostFacts | None, now: datetime) -> Fields:
    """What a node has from its cordon on; without facts, as a FleetLock server has none, no more than that."""
    at, needed = _written(now), {marks.FLUO_NEEDED: "true"}
    fluo = _of_host(facts) if facts else Fields(needed, needed)
    fields = _joined(courtesy, fluo, {marks.KURED_IN_PROGRESS: at, marks.KURED_NEEDED: at})
    return Fields({**fields.labels, **node_labels(courtesy.pre_reboot_node_labels)}, fields.annotations)


def proven(courtesy: CourtesyPolicy, version: str) -> Fields:
    """What a node has that is rebooted and proven, and runs this version; for as long as nobody changes it."""
    fields = _joined(courtesy, _fluo({marks.FLUO_VERSION: version}, UpdateOperation.IDLE, "", needed="false"), {})
    return Fields({**fields.labels, **node_labels(courtesy.post_reboot_node_labels)}, fields.annotations)


def _of_host(facts: HostFacts) -> Fields:
    """By what update_engine says; where it says nothing, another source says that the host needs its reboot."""
    update = facts.update
    is_silent = update.operation is UpdateOperation.UNKNOWN
    operation = UpdateOperation.NEED_REBOOT if is_silent else update.operation
    said = {
        marks.FLUO_ID: facts.os_id,
        marks.FLUO_GROUP: facts.group,
        marks.FLUO_VERSION: facts.running_version,
    }
    return _fluo(said, operation, update.new_version, needed="true", checked=str(update.last_checked))


def _fluo(
    said: Mapping[str, str], operation: UpdateOperation, new_version: str, *, needed: str, checked: str = ""
) -> Fields:
    """As FLUO's agents write it; of what a host said, what a label can hold."""
    labels = {name: value for name, value in said.items() if value and is_label_value(value)}
    annotations = {
        marks.FLUO_STATUS: operation.value,
        marks.FLUO_NEW_VERSION: new_version or NO_VERSION,
        marks.FLUO_NEEDED: needed,
        **({marks.FLUO_CHECKED: checked} if checked else {}),
    }
    return Fields({**labels, marks.FLUO_NEEDED: needed}, annotations)


def _joined(courtesy: CourtesyPolicy, fluo: Fields, kured: Mapping[str, str]) -> Fields:
    """What is asked for of the two."""
    asked = courtesy.annotate_compat
    of_kured = kured if Compat.KURED in asked else {}
    return Fields(fluo.labels, {**fluo.annotations, **of_kured}) if Compat.FLUO in asked else Fields({}, of_kured)


def _written(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
