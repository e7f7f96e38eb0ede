"""FleetLock: groups, and who holds their slots. The protocol is Zincati's.

https://coreos.github.io/zincati/development/fleetlock/protocol/

* held: the host has asked for a reboot, and has taken a slot. Its node is drained.
* granted: the host may reboot. The grant is the phase `rebooting` on the Node.
* reported: the host has reported steady state.
* given up: by `rollout fleetlock release`, or a report without a reboot.
* returned: the node is uncordoned and back in service, by the edge `proven` or, without proof,
  `returned`. The cluster settles from it.
* released (an answer): the node is returned. Its slot may still be held.
* freed: the slot is removed, for another host to take.

What the worker does with a slot, by its fields:

    state           is_given_up  has_reported  the worker
    held            no           no            drains the node, and awaits its reboot
    held            no           yes           proves the node, and returns it
    failed, absent  no           no            leaves the node as it is
    any             yes          any           returns the node without another reboot

`closing` and `awaited` are the worker's own, and are reset when the node has failed.
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

    `failed`: the node stays cordoned until its host reports. `absent`: the slot is free, but the
    node is unavailable.
    """

    HELD = "held"
    FAILED = "failed"
    ABSENT = "absent"


class Awaited(StrEnum):
    """What a slot waits for: its drain, or its host's request, boot, Ready or report.

    `calm`: its host may still follow its grant, although its boot is not awaited any more.
    """

    NOTHING = ""
    DRAIN = "drain"
    ASK = "ask"
    BOOT = "boot"
    READY = "ready"
    REPORT = "report"
    LATE_REBOOT = "calm"


# Older than the terms above, which use `released` and `returned` otherwise. Kept because servers
# of two versions share the slots.
_STORED_NAMES = {"run_id": "run", "is_given_up": "released", "has_reported": "returned"}


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
    # No more reboots are granted: the node is about to be returned.
    closing: bool = False
    is_given_up: bool = False
    has_reported: bool = False
    awaited: Awaited = Awaited.NOTHING
    # By the API server's clock, so that another server continues the timeout.
    awaited_since: str = ""


class Slots(Struct, frozen=True, rename={"all": "held"}):
    """All slots, also failed and absent ones.

    Methods with a run ID return them with that slot changed.
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

    def taken(self, group: str) -> Sequence[Slot]:
        """Return the slots that count against the group's size."""
        slots = [slot for slot in self.all if slot.group == group]
        return [slot for slot in slots if slot.state is not SlotState.ABSENT]

    @property
    def nodes(self) -> frozenset[str]:
        """Return the nodes that hold slots, and count as unavailable."""
        return frozenset(slot.node for slot in self.all)

    def with_slot(self, slot: Slot) -> "Slots":
        """Return the slots with one more, if the node has none."""
        return self if self.of_node(slot.node) else Slots((*self.all, slot))

    def free(self, run_id: str) -> "Slots":
        """Return the slots without the rollout's."""
        return Slots(tuple(slot for slot in self.all if slot.run_id != run_id))

    def give_up(self, run_id: str) -> "Slots":
        """Have the node returned without another reboot."""
        return self._changed(run_id, is_given_up=True)

    def report(self, run_id: str) -> "Slots":
        """Note the host's report; a failed node is proved again."""
        return self._changed(run_id, has_reported=True, state=SlotState.HELD)

    def report_absent(self, run_id: str) -> "Slots":
        """Note the report of an absent node's host, whose slot may be taken meanwhile."""
        return self._changed(run_id, has_reported=True, is_given_up=True)

    def close(self, run_id: str) -> "Slots":
        """Grant no reboot any more."""
        return self._changed(run_id, closing=True)

    def reopen(self, run_id: str) -> "Slots":
        """Wait for the host again, with a new timeout."""
        return self._changed(run_id, closing=False, awaited=Awaited.NOTHING)

    def fail(self, run_id: str, state: SlotState) -> "Slots":
        """Keep the slot of a node that stays cordoned."""
        return self._changed(
            run_id, state=state, has_reported=False, closing=False, awaited=Awaited.NOTHING
        )

    def move(self, run_id: str, node_uid: str) -> "Slots":
        """Move the slot to the host's new Node."""
        return self._changed(run_id, node_uid=node_uid)

    def wait(self, run_id: str, awaited: Awaited, at: str) -> "Slots":
        """Note what the slot waits for since `at`, unless it already waits for it."""
        slot = self.of_run(run_id)
        if slot is None or slot.awaited is awaited:
            return self
        return self._changed(run_id, awaited=awaited, awaited_since=at)

    def _changed(self, run_id: str, **fields: bool | str) -> "Slots":
        slots = list[Slot]()
        for slot in self.all:
            slots.append(replace(slot, **fields) if slot.run_id == run_id else slot)
        return Slots(tuple(slots))


NO_SLOTS = Slots()


def is_fleetlock_run(run_id: str) -> bool:
    """Whether the rollout is a reboot that the host asked for."""
    return run_id.startswith(RUN_PREFIX)
