"""Zincati's name for a host: systemd's id of the machine for one application, as `sd_id128_get_machine_app_specific`.

HMAC-SHA256 of Zincati's application id, keyed with the machine id; the first half, marked as a UUID of version 4.
"""

import hashlib
import hmac

_APPLICATION = bytes.fromhex("de35106b6ec24688b63afddaa156679b")
_SIZE = 16


def zincati_id(machine_id: str) -> str:
    """The id (32 hex digits) that the host of this machine id goes by; empty where the machine id is none."""
    try:
        key = bytes.fromhex(machine_id.replace("-", ""))
    except ValueError:
        return ""
    if len(key) != _SIZE:
        return ""
    digest = bytearray(hmac.new(key, _APPLICATION, hashlib.sha256).digest()[:_SIZE])
    digest[6] = (digest[6] & 0x0F) | 0x40
    digest[8] = (digest[8] & 0x3F) | 0x80
    return digest.hex()
