"""Pods of every shape that a drain tells apart, the flags that it knows, and what kubectl makes of each with each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from rollout.model.policy import DrainPolicy
from rollout.model.quantity import Duration
from tests.execution.drains import add_pod, ago, owner
from tests.standalone_api import StandaloneApi

REMOVED, KEPT, REFUSED = "removed", "kept", "refused"
GRACE, OVERDUE = 7, 20

EMPTY_DIR = ({"name": "d", "emptyDir": {}},)
MEMORY = ({"name": "d", "emptyDir": {"medium": "Memory"}},)
HOST_PATH = ({"name": "d", "hostPath": {"path": "/x"}},)


@dataclass(frozen=True)
class Shape:
    """A pod. `deleted_ago`: its deletion should have ended it so many seconds ago."""

    owned: Mapping[str, Any] | None = None
    volumes: tuple[Mapping[str, Any], ...] = ()
    phase: str = "Running"
    ready: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)
    deleted_ago: int | None = None

    @property
    def finished(self) -> bool:
        return self.phase in {"Succeeded", "Failed"}

    @property
    def labels(self) -> Mapping[str, str]:
        labels: Mapping[str, str] = self.metadata.get("labels", {})
        return labels


DS = owner("DaemonSet", "agent")
GONE_DS = owner("DaemonSet", "gone")
RS, RC, JOB = (
    owner("ReplicaSet"),
    owner("ReplicationController", api_version="v1"),
    owner("Job", api_version="batch/v1"),
)
MIRROR = {"annotations": {"kubernetes.io/config.mirror": "x"}}
WEB = {"labels": {"tier": "web"}}

# By name; None is a node without any pod.
SHAPES: dict[str, Shape | None] = {
    "none": None,
    "rc": Shape(RC),
    "rs": Shape(RS),
    "rs-unready": Shape(RS, ready=False),
    "rs-pending": Shape(RS, phase="Pending", ready=False),
    "rs-empty-dir": Shape(RS, EMPTY_DIR),
    "rs-memory": Shape(RS, MEMORY),
    "rs-host-path": Shape(RS, HOST_PATH),
    "stateful": Shape(owner("StatefulSet")),
    "custom": Shape(owner("Database", api_version="example.org/v1")),
    "ds": Shape(DS),
    "ds-succeeded": Shape(DS, phase="Succeeded"),
    "ds-failed": Shape(DS, phase="Failed"),
    "ds-empty-dir": Shape(DS, EMPTY_DIR),
    "ds-gone": Shape(GONE_DS),
    "ds-gone-empty-dir": Shape(GONE_DS, EMPTY_DIR),
    "ds-gone-succeeded": Shape(GONE_DS, phase="Succeeded"),
    "ds-old-group": Shape(owner("DaemonSet", "agent", "extensions/v1beta1")),
    "job-empty-dir": Shape(JOB, EMPTY_DIR),
    "job-empty-dir-succeeded": Shape(JOB, EMPTY_DIR, phase="Succeeded"),
    "naked": Shape(),
    "naked-succeeded": Shape(phase="Succeeded"),
    "naked-empty-dir": Shape(volumes=EMPTY_DIR),
    "naked-empty-dir-failed": Shape(volumes=EMPTY_DIR, phase="Failed"),
    "mirror": Shape(owner("Node", api_version="v1"), metadata=MIRROR),
    "mirror-empty-dir": Shape(volumes=EMPTY_DIR, metadata=MIRROR),
    "labelled": Shape(metadata=WEB),
    "rs-labelled": Shape(RS, metadata=WEB),
    "rs-terminating-1s": Shape(RS, deleted_ago=1),
    "rs-terminating-100s": Shape(RS, deleted_ago=100),
    "rs-empty-dir-terminating-1s": Shape(RS, EMPTY_DIR, deleted_ago=1),
    "ds-gone-terminating-1s": Shape(GONE_DS, deleted_ago=1),
    "naked-terminating-1s": Shape(deleted_ago=1),
    "naked-terminating-100s": Shape(deleted_ago=100),
}


@dataclass(frozen=True)
class Flags:
    """A combination; `--ignore-daemonsets` is always on."""

    force: bool = False
    emptied: bool = False
    deleting: bool = False
    grace: bool = False
    skip: bool = False
    selector: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """As kubectl has them."""
        said = {
            "--force": self.force,
            "--delete-emptydir-data": self.emptied,
            "--disable-eviction": self.deleting,
            f"--grace-period={GRACE}": self.grace,
            f"--skip-wait-for-delete-timeout={OVERDUE}": self.skip,
            f"--pod-selector={self.selector}": self.selector,
        }
        return tuple(word for word, on in said.items() if on)

    @property
    def policy(self) -> DrainPolicy:
        """As we have them."""
        return DrainPolicy(
            Duration(20),
            force=self.force,
            delete_emptydir_data=self.emptied,
            disable_eviction=self.deleting,
            grace_period=GRACE if self.grace else None,
            skip_wait_for_delete_timeout=OVERDUE if self.skip else 0,
            pod_selector=self.selector,
        )

    def chooses(self, shape: Shape) -> bool:
        """Whether the selector does."""
        web = shape.labels.get("tier") == "web"
        return {"": True, "tier=web": web, "tier!=web": not web}[self.selector]

    def __str__(self) -> str:
        return " ".join(self.words) or "none"


ON_AND_OFF = (False, True)
EVERY = tuple(
    Flags(force, emptied, deleting, grace, skip, selector)
    for selector in ("", "tier=web", "tier!=web")
    for force, emptied, deleting, grace, skip in product(ON_AND_OFF, repeat=5)
)


def covering() -> tuple[Flags, ...]:
    """Few combinations in which every pair of settings occurs."""
    plain = tuple(
        Flags(force, emptied, deleting, grace=force ^ emptied, skip=emptied ^ deleting)
        for force, emptied, deleting in product(ON_AND_OFF, repeat=3)
    )
    return (
        *plain,
        Flags(force=True, grace=True, selector="tier=web"),
        Flags(emptied=True, deleting=True, skip=True, selector="tier=web"),
        Flags(force=True, deleting=True, grace=True, skip=True, selector="tier!=web"),
        Flags(emptied=True, selector="tier!=web"),
    )


def by_kubectls_rules(shape: Shape | None, flags: Flags) -> str:
    """What `kubectl drain` does with a node that has this pod: its filters, in their order."""
    if shape is None or not flags.chooses(shape):
        return KEPT
    if flags.skip and (shape.deleted_ago or 0) > OVERDUE:
        return KEPT
    of_daemon_set = shape.owned in (DS, GONE_DS) and not shape.finished
    if of_daemon_set and shape.owned == GONE_DS and not flags.force:
        return REFUSED
    if (of_daemon_set and shape.owned == DS) or shape.metadata == MIRROR:
        return KEPT
    storing = shape.volumes in (EMPTY_DIR, MEMORY) and not shape.finished
    managed = shape.owned is not None or shape.finished
    refused = (storing and not flags.emptied) or (not managed and not flags.force)
    return REFUSED if refused else REMOVED


# Where we differ, and why. There is nothing else.
DECIDED = "its deletion was decided by whoever deleted it: it is waited for, and no reason to refuse the node"


def by_our_rules(shape: Shape | None, flags: Flags) -> tuple[str, str]:
    """What our drain does with it, and why where that is something else."""
    theirs = by_kubectls_rules(shape, flags)
    if theirs == REFUSED and shape is not None and shape.deleted_ago is not None:
        return REMOVED, DECIDED
    return theirs, ""


def place(server: StandaloneApi, node: str, name: str, shape: Shape) -> None:
    """The pod, on that node."""
    metadata = dict(shape.metadata)
    if shape.deleted_ago is not None:
        # Stored with its deletion already on it: nobody ends it until it is touched again, or time has passed.
        metadata |= {"deletionTimestamp": ago(shape.deleted_ago), "deletionGracePeriodSeconds": 30}
    owned = None if shape.owned is None else dict(shape.owned)
    volumes = [dict(volume) for volume in shape.volumes]
    add_pod(server, node, name, owned=owned, phase=shape.phase, ready=shape.ready, volumes=volumes, metadata=metadata)
