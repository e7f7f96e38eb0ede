"""The plan as a JSON document.

Documents are untrusted: reading takes bounded memory. Another major version, or an unknown rule, is
refused.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from rollout.errors import PlanFileError, UsageError
from rollout.model.json_text import DECODE_ERRORS, json_document, json_line
from rollout.model.plan import FORMAT_VERSION, Rolling, RolloutPlan, Wave
from rollout.model.policy import Policy
from rollout.model.quantity import Count
from rollout.model.text import is_object_name
from rollout.planning.eligibility.pools import order_pools
from rollout.planning.plan.rules import impossible_rules

# In bytes. 5,000 nodes make 10 MB and 240,000 values.
LARGEST_DOCUMENT = 32 << 20
# One or two bytes can take a hundred in memory.
_MOST_VALUES = 1_000_000
_LONGEST_EXCERPT = 200
_MAKE_ANEW = "Make a new one with `rollout plan --out FILE`."
_OTHER_VERSION = "Apply it with the version of rollout that made it, or make a new plan."
_MSGSPEC_ENUM_ERROR = "Invalid enum value"


class _PlanHeader(msgspec.Struct):
    format_version: str


class _WrittenRules(msgspec.Struct):
    policy: dict[str, Any]
    selection: dict[str, Any]


def _encode(value: object) -> object:
    if isinstance(value, Count) and not value.is_share:
        return int(value)
    return str(value)


def _decode(wanted: Any, value: Any) -> Any:
    """Decode a value of ours, such as `Count`, by its `parse`."""
    if wanted is Count and type(value) is int:
        value = str(value)
    if isinstance(value, str):
        try:
            return wanted.parse(value)
        except UsageError as error:
            raise ValueError(error.message) from error
    raise ValueError(f"a {wanted.__name__} must be a string")


def with_id(plan: RolloutPlan) -> RolloutPlan:
    """The ID shows edits of a file."""
    digest = hashlib.sha256(json_line(replace(plan, plan_id=""), _encode))
    return replace(plan, plan_id=digest.hexdigest()[:16])


def _document_id(data: bytes) -> str:
    """Return the ID as written, even if this program would write it differently."""
    # As `with_id` does: in one line, and with an empty ID.
    compact = msgspec.json.format(data, indent=-1)
    content = msgspec.json.decode(compact, type=dict[str, msgspec.Raw])
    content["plan_id"] = msgspec.Raw(b'""')
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:16]


def encode_plan(plan: RolloutPlan) -> bytes:
    return json_document(plan, _encode)


def policy_document(policy: Policy) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(policy, enc_hook=_encode))
    return document


def read_policy(document: object) -> Policy | None:
    try:
        return msgspec.convert(document, Policy, dec_hook=_decode)
    except msgspec.ValidationError:
        return None


def read_plan(document: object) -> RolloutPlan | None:
    try:
        return msgspec.convert(document, RolloutPlan, dec_hook=_decode)
    except msgspec.ValidationError:
        return None


def decode_plan(data: bytes, origin: str) -> RolloutPlan:
    """Raise `PlanFileError` about the `origin`, such as a file."""
    _check_size(data, origin)
    _check_version(data, origin)
    try:
        plan = msgspec.json.decode(data, type=RolloutPlan, dec_hook=_decode)
        written_rules = msgspec.json.decode(data, type=_WrittenRules)
        document_id = _document_id(data)
    except DECODE_ERRORS as error:
        raise _decode_error(str(error)[:_LONGEST_EXCERPT], origin) from error
    if plan.plan_id != document_id:
        raise PlanFileError(f"{origin} has been edited since it was made", hint=_MAKE_ANEW)
    _check_rules_are_known(plan, written_rules, origin)
    problem = next(_problems(plan), "")
    if problem:
        message = f"{origin} is not a plan made by rollout: {problem[:_LONGEST_EXCERPT]}"
        raise PlanFileError(message, hint=_MAKE_ANEW)
    return plan


def _decode_error(problem: str, origin: str) -> PlanFileError:
    """An unknown word is probably from a newer version."""
    hint = _MAKE_ANEW
    if problem.startswith(_MSGSPEC_ENUM_ERROR):
        word = problem.removeprefix(_MSGSPEC_ENUM_ERROR).strip()
        problem = f"it has a value that this version of rollout does not know: {word}"
        hint = _OTHER_VERSION
    return PlanFileError(f"{origin} is not a complete plan: {problem}", hint=hint)


def _check_size(data: bytes, origin: str) -> None:
    if len(data) > LARGEST_DOCUMENT:
        largest_mib = LARGEST_DOCUMENT >> 20
        raise PlanFileError(f"{origin} is larger than {largest_mib} MiB", hint=_MAKE_ANEW)
    # Each value follows one of these signs, so their number bounds the memory.
    value_count = sum(data.count(sign) for sign in (b",", b"[", b"{"))
    if value_count > _MOST_VALUES:
        raise PlanFileError(f"{origin} contains more than {_MOST_VALUES} values", hint=_MAKE_ANEW)


def _check_version(data: bytes, origin: str) -> None:
    try:
        version = msgspec.json.decode(data, type=_PlanHeader).format_version
    except DECODE_ERRORS as error:
        message = f"{origin} is not a rollout plan: {str(error)[:_LONGEST_EXCERPT]}"
        raise PlanFileError(message, hint=_MAKE_ANEW) from error
    major = version.split(".")[0]
    own_major = FORMAT_VERSION.split(".")[0]
    if major != own_major:
        raise PlanFileError(
            f"{origin} has the plan format {version[:_LONGEST_EXCERPT]}; this program reads"
            f" {FORMAT_VERSION}",
            hint=_OTHER_VERSION,
        )


def _check_rules_are_known(plan: RolloutPlan, written: _WrittenRules, origin: str) -> None:
    selection = msgspec.to_builtins(plan.selection)
    unknown = [
        *_unknown_paths(written.policy, policy_document(plan.policy), "policy"),
        *_unknown_paths(written.selection, selection, "selection"),
    ]
    if unknown:
        raise PlanFileError(
            f"{origin} has a setting that this program does not know:"
            f" {unknown[0][:_LONGEST_EXCERPT]}",
            hint=_OTHER_VERSION,
        )


def _unknown_paths(written: Any, decoded: Any, path: str) -> Iterator[str]:
    """Yield paths, such as `policy.pools[0].ramp`, of fields that were not decoded."""
    if isinstance(written, dict) and isinstance(decoded, dict):
        for name, value in written.items():
            field_path = f"{path}.{name}"
            if name in decoded:
                yield from _unknown_paths(value, decoded[name], field_path)
            else:
                yield field_path
    elif isinstance(written, list) and isinstance(decoded, list):
        for position, (written_item, item) in enumerate(zip(written, decoded, strict=False)):
            yield from _unknown_paths(written_item, item, f"{path}[{position}]")


def _problems(plan: RolloutPlan) -> Iterator[str]:
    occurrences = Counter(node.name for node in plan.nodes)
    for name, number in occurrences.items():
        if not is_object_name(name):
            yield f"{name!r} is not a Node name"
        if number > 1:
            yield f"{name!r} is planned more than once"
    for wave in plan.waves:
        if wave.rolling:
            yield from _rolling_problems(wave, wave.rolling)
    yield from _pool_problems(plan)
    yield from impossible_rules(plan.policy)


def _pool_problems(plan: RolloutPlan) -> Iterator[str]:
    pool_names = {""}
    try:
        if plan.policy.pools:
            pool_names.update(order_pools(plan.policy.pools))
    except UsageError as error:
        yield error.message
        return
    for node in plan.nodes:
        if node.pool not in pool_names:
            yield f"{node.name} is in the pool {node.pool!r}, which has no settings"


def _rolling_problems(wave: Wave, rules: Rolling) -> Iterator[str]:
    node_names = {node.name for node in wave.nodes}
    ruled_names = {*rules.holds, *rules.begins}
    for name in sorted(ruled_names - node_names):
        yield f"wave {wave.index} has a rolling order with {name!r}, which is not one of its nodes"
    held_keys = set(chain.from_iterable(rules.holds.values()))
    for key in sorted(held_keys - rules.capacity.keys()):
        yield f"wave {wave.index} does not specify the capacity of {key!r}"
