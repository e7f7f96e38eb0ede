"""The plan as a JSON document: what `plan -o json` prints and `--out` saves.

Durations and counts stand in it as the flags write them. Fields may be added within a major format version; a reader
refuses a newer major one.
"""

import hashlib
from dataclasses import replace
from typing import Any

import msgspec

from rollout.errors import PlanFileError, UsageError
from rollout.model.json_text import json_document
from rollout.model.plan import FORMAT_VERSION, RolloutPlan
from rollout.model.policy import Policy
from rollout.model.quantity import Count, Duration

_WRITTEN = (Count, Duration)
_MAKE_ANEW = "Make a new one with `rollout plan --out FILE`."


class _Header(msgspec.Struct):
    """What every version of the format begins with."""

    format_version: str


def _encode(value: object) -> str:
    if isinstance(value, _WRITTEN):
        return str(value)
    raise NotImplementedError(type(value))


def _decode(wanted: type, value: Any) -> Any:
    if wanted in _WRITTEN and isinstance(value, str):
        try:
            return wanted.parse(value)
        except UsageError as error:
            raise ValueError(error.message) from error
    raise NotImplementedError(wanted)


def identify(plan: RolloutPlan) -> str:
    """Identity of a plan: a digest of all the rest of it, so that an edited file betrays itself."""
    return hashlib.sha256(_encode_content(replace(plan, plan_id=""))).hexdigest()[:16]


def _identity_as_written(data: bytes) -> str:
    """Digest of a document with the fields that it has: a plan saved before a field was added is still itself."""
    content = {**msgspec.json.decode(data), "plan_id": ""}
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:16]


def _encode_content(plan: RolloutPlan) -> bytes:
    return msgspec.json.encode(plan, enc_hook=_encode)


def encode_plan(plan: RolloutPlan) -> bytes:
    """The plan as JSON for people and files, ending in a newline."""
    return json_document(plan, _encode)


def policy_document(policy: Policy) -> dict[str, Any]:
    """The rules as they stand in a plan's document."""
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(policy, enc_hook=_encode))
    return document


def decode_plan(data: bytes, origin: str) -> RolloutPlan:
    """The plan in a document; `origin` names it in errors. `PlanFileError` for anything that is not a whole plan."""
    _check_version(data, origin)
    try:
        plan = msgspec.json.decode(data, type=RolloutPlan, dec_hook=_decode)
    except msgspec.MsgspecError as error:
        raise PlanFileError(f"{origin} is not a whole plan: {error}", hint=_MAKE_ANEW) from error
    if plan.plan_id != _identity_as_written(data):
        raise PlanFileError(f"{origin} has been edited since it was made", hint=_MAKE_ANEW)
    return plan


def _check_version(data: bytes, origin: str) -> None:
    try:
        version = msgspec.json.decode(data, type=_Header).format_version
    except msgspec.MsgspecError as error:
        raise PlanFileError(f"{origin} is not a rollout plan: {error}", hint=_MAKE_ANEW) from error
    if version.split(".")[0] != FORMAT_VERSION.split(".")[0]:
        raise PlanFileError(
            f"{origin} has the plan format {version}; this program reads {FORMAT_VERSION}",
            hint="Apply it with the version of rollout that made it, or make a new plan.",
        )
