"""FleetLock: which host asks, for which group, and who holds the slots. The protocol is Zincati's.

https://coreos.github.io/zincati/development/fleetlock/protocol/
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache

from rollout.model.quantity import Count

RUN_PREFIX = "fleetlock-"
_GROUP = re.compile(r"[a-zA-Z0-9.-]{1,128}")
_MACHINE_ID = re.compile(r"[0-9a-f]{32}")
# Zincati's application id: what a host tells of its machine id is made with it, as systemd's
# app-specific ids are.
_ZINCATI = bytes.fromhex("de35106b6ec24688b63afddaa156679b")


def is_group(text: str) -> bool:
    """Whether it can be the name of a group."""
    return _GROUP.fullmatch(text) is not None


@lru_cache(maxsize=65_536)
def zincati_id(machine_id: str) -> str:
    """Return the id by which Zincati on this machine asks: 32 hex digits; empty where the machine id is none.

    HMAC-SHA256 keyed with the machine id, of Zincati's application id; the first 16 bytes, marked
    as a UUID of version 4.
    """
    plain = machine_id.replace("-", "").lower()
    if not _MACHINE_ID.fullmatch(plain):
        return ""
    digest = bytearray(hmac.new(bytes.fromhex(plain), _ZINCATI, hashlib.sha256).digest()[:16])
    digest[6] = (digest[6] & 0x0F) | 0x40
    digest[8] = (digest[8] & 0x3F) | 0x80
    return digest.hex()


@dataclass(frozen=True, slots=True)
class GroupRules:
    """How many of a group's hosts may hold a slot, and which labels its nodes have; an empty selector means any."""

    slots: Count = Count(1)
    selector: str = ""


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups that are known. Where none is named any is, each with the rules of `others`."""

    others: GroupRules = GroupRules()
    named: Mapping[str, GroupRules] = field(default_factory=dict)

    def rules(self, name: str) -> GroupRules | None:
        """Those of a group; None where it is unknown."""
        return self.named.get(name, None if self.named else self.others)


class SlotState(StrEnum):
    """What a slot is to its group. Where the node stands in its reboot, its own marks say.

    `held`: a server takes the node through, and the slot is taken. `failed`: the node ended badly
    and stays cordoned; nobody works on it until its host reports back, and the slot stays taken.
    `absent`: the same of a node that was proven to be away: the slot is free for others, while the
    node counts as unavailable.
    """

    HELD = "held"
    FAILED = "failed"
    ABSENT = "absent"


class Awaited(StrEnum):
    """What a slot's turn waits for: its drain's end, its host's ask, boot, Ready or report.

    `calm`: that the host stays up, where it was granted a reboot that is not expected any more.
    """

    NOTHING = ""
    DRAIN = "drain"
    ASK = "ask"
    BOOT = "boot"
    READY = "ready"
    REPORT = "report"
    CALM = "calm"


@dataclass(frozen=True, slots=True)
class Slot:
    """Who holds a slot of a group. `since` is RFC 3339, `boot_id` and `version` are those before the reboot.

    `id` is what the host calls itself, `run` the rollout that its node's marks name. `closing`: no
    grant is given any more, for the node is about to be returned. `released`: an operator takes
    the slot away. `returned`: the host has reported steady state since. `awaited_since` is RFC 3339
    by the API server's clock: whichever server goes on with the node, its time-outs do not begin
    anew.
    """

    group: str
    node: str
    node_uid: str
    id: str
    run: str
    since: str
    boot_id: str
    version: str = ""
    state: SlotState = SlotState.HELD
    closing: bool = False
    released: bool = False
    returned: bool = False
    awaited: Awaited = Awaited.NOTHING
    awaited_since: str = ""


@dataclass(frozen=True, slots=True)
class Slots:
    """All slots that are held, of all groups."""

    held: tuple[Slot, ...] = ()

    def of_node(self, node: str) -> Slot | None:
        """Return the slot that is held for this node."""
        return next((slot for slot in self.held if slot.node == node), None)

    def of_run(self, run: str) -> Slot | None:
        """Return the slot whose node carries the marks of this rollout."""
        return next((slot for slot in self.held if slot.run == run), None)

    def of_id(self, asked_as: str) -> Slot | None:
        """Return the slot that is held by the host that calls itself so."""
        return next((slot for slot in self.held if slot.id == asked_as), None)

    def taken(self, group: str) -> int:
        """How many of a group's slots are not free."""
        return sum(
            1 for slot in self.held if slot.group == group and slot.state is not SlotState.ABSENT
        )

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that slots are held for; all of them count as unavailable."""
        return frozenset(slot.node for slot in self.held)

    def with_slot(self, slot: Slot) -> "Slots":
        """One more; the same where one is held for that node already."""
        return self if self.of_node(slot.node) else Slots((*self.held, slot))

    def changed(self, run: str, **fields: bool | str) -> "Slots":
        """Return the slot of this rollout with other words; nothing where it is not held any more."""
        return Slots(
            tuple(replace(slot, **fields) if slot.run == run else slot for slot in self.held)  # type: ignore[arg-type]
        )

    def awaiting(self, run: str, awaited: Awaited, at: str) -> "Slots":
        """With what the turn of this rollout waits for since then; the same where it waits for that already."""
        slot = self.of_run(run)
        is_new = slot is not None and slot.awaited is not awaited
        return self.changed(run, awaited=awaited, awaited_since=at) if is_new else self

    def without(self, run: str) -> "Slots":
        """Free the slot of this rollout."""
        return Slots(tuple(slot for slot in self.held if slot.run != run))


NO_SLOTS = Slots()


def is_fleetlock_run(run: str) -> bool:
    """Whether a rollout is one node's way through a reboot that its host has asked for."""
    return run.startswith(RUN_PREFIX)
