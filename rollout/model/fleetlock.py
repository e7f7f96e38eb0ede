"""FleetLock's groups and slots. The protocol is Zincati's.

https://coreos.github.io/zincati/development/fleetlock/protocol/

`rollout.server` shows a slot's life. Its terms, beside the protocol's:

* granted: the Node has the phase `rebooting`, so the host may reboot.
* suspended: no replica grants the reboot until the worker resumes grants.
* returned: the node is back in service, by the edge `proven` or, without proof, `returned`. The
  host gets the answer `released`, although the slot is still held.
* released: the slot is removed, and another host can reserve it.

What the worker does, by the slot's fields:

    state           is_canceled  has_reported  the worker
    held            no           no            drains the node, and awaits its reboot
    held            no           yes           proves the reboot, and returns the node
    failed, absent  no           no            leaves the node as it is
    any             yes          any           returns the node without another reboot

Only the worker sets `is_suspended` and `awaited`.
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
    """Whether it is a group name."""
    return _GROUP.fullmatch(text) is not None


@lru_cache(maxsize=65_536)
def zincati_id(machine_id: str) -> str:
    """Return the 32 hex digits that Zincati sends, a systemd app-specific ID, or empty."""
    plain = machine_id.replace("-", "").lower()
    if not _MACHINE_ID.fullmatch(plain):
        return ""
    key = bytes.fromhex(plain)
    digest = hmac.new(key, _ZINCATI_APPLICATION_ID, hashlib.sha256).digest()
    uuid = bytearray(digest[:16])
    uuid[6] = (uuid[6] & 0x0F) | 0x40
    uuid[8] = (uuid[8] & 0x3F) | 0x80
    return uuid.hex()


class GroupRules(Struct, frozen=True):
    """The nodes of a group, and how many may reboot at once."""

    slots: Count = Count(1)
    # Empty for all nodes.
    selector: str = ""


class Groups(Struct, frozen=True):
    """The known groups."""

    # If none is named, every group has these rules.
    others: GroupRules = GroupRules()
    named: Mapping[str, GroupRules] = field(default_factory=dict)

    def rules(self, name: str) -> GroupRules | None:
        """Return the rules; None if unknown."""
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


# These names are older than the terms. Servers of two versions share the slots.
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
    # Before the reboot.
    boot_id: str
    version: str = ""
    state: SlotState = SlotState.HELD
    # The node may have to be returned.
    is_suspended: bool = False
    is_canceled: bool = False
    has_reported: bool = False
    awaited: Awaited = Awaited.NOTHING
    # By the API server's clock, for other replicas.
    awaited_since: str = ""


class Slots(Struct, frozen=True, rename={"all": "held"}):
    """All slots. Methods with a run ID return all, with that slot changed."""

    all: tuple[Slot, ...] = ()

    def of_node(self, node: str) -> Slot | None:
        """Return the node's slot, or None."""
        return next((slot for slot in self.all if slot.node == node), None)

    def of_run(self, run_id: str) -> Slot | None:
        """Return the rollout's slot, or None."""
        return next((slot for slot in self.all if slot.run_id == run_id), None)

    def of_id(self, host_id: str) -> Slot | None:
        """Return the host's slot, or None."""
        return next((slot for slot in self.all if slot.id == host_id), None)

    def counted(self, group: str) -> Sequence[Slot]:
        """Return slots that count toward the limit."""
        slots = [slot for slot in self.all if slot.group == group]
        return [slot for slot in slots if slot.state is not SlotState.ABSENT]

    @property
    def nodes(self) -> frozenset[str]:
        """Return the nodes, which count as unavailable."""
        return frozenset(slot.node for slot in self.all)

    def add(self, slot: Slot) -> "Slots":
        """Add a slot unless its node has one."""
        return self if self.of_node(slot.node) else Slots((*self.all, slot))

    def release(self, run_id: str) -> "Slots":
        """Remove the slot."""
        return Slots(tuple(slot for slot in self.all if slot.run_id != run_id))

    def cancel(self, run_id: str) -> "Slots":
        """Have the node returned without a reboot."""
        return self._changed(run_id, is_canceled=True)

    def report(self, run_id: str) -> "Slots":
        """Note that the host reported steady state."""
        slot = self.of_run(run_id)
        is_absent = slot is not None and slot.state is SlotState.ABSENT
        if is_absent:
            # Another host may have its place, so this slot is not held again.
            return self._changed(run_id, has_reported=True, is_canceled=True)
        # The worker tries again to prove it.
        return self._changed(run_id, has_reported=True, state=SlotState.HELD)

    def suspend_grants(self, run_id: str) -> "Slots":
        """Have no replica grant the reboot."""
        return self._changed(run_id, is_suspended=True)

    def resume_grants(self, run_id: str) -> "Slots":
        """Have the next wait start with a new timeout."""
        return self._changed(run_id, is_suspended=False, awaited=Awaited.NOTHING)

    def fail(self, run_id: str, state: SlotState) -> "Slots":
        """Keep the slot as `failed` or `absent`."""
        return self._changed(
            run_id, state=state, has_reported=False, is_suspended=False, awaited=Awaited.NOTHING
        )

    def adopt_node(self, run_id: str, node_uid: str) -> "Slots":
        """Continue with the host's new Node."""
        return self._changed(run_id, node_uid=node_uid)

    def start_wait(self, run_id: str, awaited: Awaited, at: str) -> "Slots":
        """Note the wait since `at`, unless begun."""
        slot = self.of_run(run_id)
        if slot is None:
            return self
        if slot.awaited is awaited:
            return self
        return self._changed(run_id, awaited=awaited, awaited_since=at)

    def _changed(self, run_id: str, **fields: bool | str) -> "Slots":
        slots = list[Slot]()
        for slot in self.all:
            slots.append(replace(slot, **fields) if slot.run_id == run_id else slot)
        return Slots(tuple(slots))


NO_SLOTS = Slots()


def is_fleetlock_run(run_id: str) -> bool:
    """Whether the host requested the reboot."""
    return run_id.startswith(RUN_PREFIX)
