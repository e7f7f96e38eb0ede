"""What a client has sent, read: pure, from bytes to an ask or a refusal."""

import re
from dataclasses import dataclass

import msgspec

from rollout.model.fleetlock import is_group
from rollout.model.text import excerpt
from rollout.server.answers import Denied, Kind

HEADER = "fleet-lock-protocol"
_ID = re.compile(r"[0-9a-zA-Z-]{1,128}")


@dataclass(frozen=True, slots=True)
class Ask:
    """Who asks: the id that a host makes of its machine id, in lower case without dashes; and its group."""

    id: str
    group: str


class _Parameters(msgspec.Struct):
    id: str
    group: str


class _Body(msgspec.Struct):
    client_params: _Parameters


def check_request(method: str, header: str | None) -> None:
    """`Denied` for a request that is none of the protocol's."""
    if method != "POST":
        raise Denied(Kind.METHOD_NOT_ALLOWED, f"{method}: the protocol knows POST only")
    if (header or "").strip().lower() != "true":
        raise Denied(Kind.MISSING_HEADER, f"the header {HEADER}: true is missing")


def read_ask(body: bytes) -> Ask:
    """Who asks; `Denied` for a body that does not say it."""
    try:
        parameters = msgspec.json.decode(body, type=_Body).client_params
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Denied(Kind.DECODE_ERROR, f"the body is not the protocol's JSON: {excerpt(str(error))}") from error
    if not is_group(parameters.group):
        raise Denied(Kind.INVALID_CLIENT_IDENTITY, "the group is empty, or none: letters, digits, dots and dashes")
    if not _ID.fullmatch(parameters.id):
        raise Denied(Kind.INVALID_CLIENT_IDENTITY, "the id is empty, or none")
    return Ask(parameters.id.replace("-", "").lower(), parameters.group)
