"""FleetLock: which host asks, for which group, and who holds the slots. The protocol is Zincati's.

https://coreos.github.io/zincati/development/fleetlock/protocol/
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from rollout.model.quantity import Count

DEFAULT_GROUP = "default"
_GROUP = re.compile(r"[a-zA-Z0-9.-]{1,128}")
_MACHINE_ID = re.compile(r"[0-9a-f]{32}")
# Zincati's application id: what a host tells of its machine id is made with it (systemd's sd_id128_get_machine_app_specific).
_ZINCATI = bytes.fromhex("de35106b6ec24688b63afddaa156679b")


def is_group(text: str) -> bool:
    """Whether it can be the name of a group."""
    return _GROUP.fullmatch(text) is not None


@lru_cache(maxsize=65_536)
def zincati_id(machine_id: str) -> str:
    """The id by which Zincati on this machine asks: 32 hex digits; empty where the machine id is none.

    HMAC-SHA256 keyed with the machine id, of Zincati's application id; the first 16 bytes, marked as a UUID of
    version 4.
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
