"""FleetLock: groups, and their slots. The protocol is Zincati's.

https://coreos.github.io/zincati/development/fleetlock/protocol/

The docstring of `rollout.server` gives the life of a slot. Its terms, beside the protocol's:

* reserved: the slot is written for the host's node. From then on the host holds it.
* granted: the host may reboot. The grant is the phase `rebooting` on the Node.
* suspended: no replica grants the reboot, until the worker resumes grants.
* canceled: the node is returned without another reboot, because of `rollout fleetlock release`, or
  of a report without a reboot.
* returned: the node is uncordoned and back in service, by the edge `proven` or, without proof,
  `returned`. The host then gets the answer `released`, although the slot is still held.
* released: the slot is removed, and another host can reserve it.

What the worker does with a slot, by its fields:

    state           is_canceled  has_reported  the worker
    held            no           no            drains the node, and awaits its reboot
    held            no           yes           proves the reboot, and returns the node
    failed, absent  no           no            leaves the node as it is
    any             yes          any           returns the node without another reboot

`is_suspended` and `awaited` are the worker's own, and are reset when the node has failed.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct, field
from msgspec.structs import replace

from rollout.model.quantity import Count

RUN_PREFIX = "fleetlock-"
_GROUP = re.compile(r"[a-zA-Z0-9.-]{1,128}")
_MACHINE_ID = re.compile(r"[0-9a-f]{32}")
_ZINCATI_APPLICATION_ID = bytes.fromhex("de35106b6ec24688b63afddaa156679b")


def is_group(text: str) -> bool:
    """Whether the text is a valid group name."""
    return _GROUP.fullmatch(text) is not None


@lru_cache(maxsize=65_536)
def zincati_id(machine_id: str) -> str:
    """Return the 32 hex digits that Zincati sends for this machine; empty if invalid.

    As systemd's app-specific IDs: an HMAC-SHA256, cut and marked as a UUID of version 4.
    """
    plain = machine_id.replace("-", "").lower()
    if not _MACHINE_ID.fullmatch(plain):
        return ""
    key = bytes.fromhex(plain)
    digest = hmac.new(key, _ZINCATI_APPLICATION_ID, hashlib.sha256).digest()
    uuid = bytearray(digest[:16])
    # The bits of a UUID that say its version and variant.
    uuid[6] = (uuid[6] & 0x0F) | 0x40
    uuid[8] = (uuid[8] & 0x3F) | 0x80
    return uuid.hex()


class GroupRules(Struct, frozen=True):
    """How many nodes of a group may reboot at once, and which nodes it has."""

    slots: Count = Count(1)
    # Empty for all nodes.
    selector: str = ""


class Groups(Struct, frozen=True):
    """The known groups."""

    # The rules of every group if none is named.
    others: GroupRules = GroupRules()
    named: Mapping[str, GroupRules] = field(default_factory=dict)

    def rules(self, name: str) -> GroupRules | None:
        """Return the rules of a group, or None if it is unknown."""
        return self.named.get(name) if self.named else self.others


class SlotState(StrEnum):
    """The state of a slot.

    `failed`: the node stays cordoned until its host reports. `absent`: the same, but its host did
    not come back, so another host can reserve a slot in its place.
    """

    HELD = "held"
    FAILED = "failed"
    ABSENT = "absent"


class Awaited(StrEnum):
    """What a slot waits for: its drain, or its host's request, boot, Ready or report.

    `calm`: the server no longer waits for the boot, but the host, whose reboot was granted, may
    still reboot.
    """

    NOTHING = ""
    DRAIN = "drain"
    REQUEST = "ask"
    BOOT = "boot"
    READY = "ready"
    REPORT = "report"
    LATE_REBOOT = "calm"


# The stored names are older than the terms above, which use `released` and `returned` otherwise.
# They are kept because FleetLock servers of two versions share the slots.
_STORED_NAMES = {
    "run_id": "run",
    "is_suspended": "closing",
    "is_canceled": "released",
    "has_reported": "returned",
}


class Slot(Struct, frozen=True, rename=_STORED_NAMES):
    """A slot that a host holds, as it is stored. Times are RFC 3339."""

    group: str
    node: str
    node_uid: str
    id: str
    run_id: str
    since: str
    # The boot ID before the reboot.
    boot_id: str
    version: str = ""
    state: SlotState = SlotState.HELD
    # The worker has suspended grants, because the node may have to be returned.
    is_suspended: bool = False
    is_canceled: bool = False
    has_reported: bool = False
    awaited: Awaited = Awaited.NOTHING
    # By the API server's clock, so that another replica continues the timeout.
    awaited_since: str = ""


class Slots(Struct, frozen=True, rename={"all": "held"}):
    """All slots: grants of FleetLock for hosts' reboots, also failed and absent ones.

    A failed slot's node stays cordoned until its host reports. An absent slot is the same, but its
    host did not come back, so another host can hold a slot in its place.

    Methods with a run ID return the slots with that rollout's slot changed.
    """

    all: tuple[Slot, ...] = ()

    def of_node(self, node: str) -> Slot | None:
        """Return the node's slot, or None."""
        return next((slot for slot in self.all if slot.node == node), None)

    def of_run(self, run_id: str) -> Slot | None:
        """Return the rollout's slot, or None."""
        return next((slot for slot in self.all if slot.run_id == run_id), None)

    def of_id(self, host_id: str) -> Slot | None:
        """Return the slot of the host with this ID, or None."""
        return next((slot for slot in self.all if slot.id == host_id), None)

    def counted(self, group: str) -> Sequence[Slot]:
        """Return the slots that count toward the group's limit."""
        slots = [slot for slot in self.all if slot.group == group]
        return [slot for slot in slots if slot.state is not SlotState.ABSENT]

    @property
    def nodes(self) -> frozenset[str]:
        """Return the nodes that hold slots, and count as unavailable."""
        return frozenset(slot.node for slot in self.all)

    def add(self, slot: Slot) -> "Slots":
        """Return the slots with one more, if the node has none."""
        return self if self.of_node(slot.node) else Slots((*self.all, slot))

    def release(self, run_id: str) -> "Slots":
        """Remove the slot."""
        return Slots(tuple(slot for slot in self.all if slot.run_id != run_id))

    def cancel(self, run_id: str) -> "Slots":
        """Have the node returned without another reboot."""
        return self._changed(run_id, is_canceled=True)

    def report(self, run_id: str) -> "Slots":
        """Note that the host has reported steady state."""
        slot = self.of_run(run_id)
        is_absent = slot is not None and slot.state is SlotState.ABSENT
        if is_absent:
            # Another host may hold a slot in its place, so this one must not become held again.
            # Instead it is canceled, so the worker returns the node.
            return self._changed(run_id, has_reported=True, is_canceled=True)
        # A failed slot, too, is held again: the worker tries again to prove the reboot.
        return self._changed(run_id, has_reported=True, state=SlotState.HELD)

    def suspend_grants(self, run_id: str) -> "Slots":
        """Have no replica grant the reboot."""
        return self._changed(run_id, is_suspended=True)

    def resume_grants(self, run_id: str) -> "Slots":
        """Undo `suspend_grants`, and have the next wait start with a new timeout."""
        return self._changed(run_id, is_suspended=False, awaited=Awaited.NOTHING)

    def fail(self, run_id: str, state: SlotState) -> "Slots":
        """Keep the slot of a node that stays cordoned, as `failed` or `absent`."""
        return self._changed(
            run_id, state=state, has_reported=False, is_suspended=False, awaited=Awaited.NOTHING
        )

    def adopt_node(self, run_id: str, node_uid: str) -> "Slots":
        """Have the slot continue with the host's new Node."""
        return self._changed(run_id, node_uid=node_uid)

    def start_wait(self, run_id: str, awaited: Awaited, at: str) -> "Slots":
        """Note what the slot waits for since `at`, unless it already waits for the same."""
        slot = self.of_run(run_id)
        if slot is None:
            return self
        if slot.awaited is awaited:
            # The time at which this wait started still counts.
            return self
        return self._changed(run_id, awaited=awaited, awaited_since=at)

    def _changed(self, run_id: str, **fields: bool | str) -> "Slots":
        slots = list[Slot]()
        for slot in self.all:
            slots.append(replace(slot, **fields) if slot.run_id == run_id else slot)
        return Slots(tuple(slots))


NO_SLOTS = Slots()


def is_fleetlock_run(run_id: str) -> bool:
    """Whether the rollout is a reboot that the host requested."""
    return run_id.startswith(RUN_PREFIX)
