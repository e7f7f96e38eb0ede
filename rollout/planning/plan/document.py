"""The plan as a JSON document: what `plan -o json` prints and `--out` saves.

Durations are written as for the flags, counts as numbers, and percentages as text. Fields that inform may be added
within a major format version; a reader refuses a newer major one, and any document with a rule that it does not know:
to go on without that rule would be to drop it.

Whoever hands a document in may have made it by hand. Whatever it holds, reading it takes bounded memory, and what is
no plan is told as one error.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from rollout.errors import PlanFileError, UsageError
from rollout.model.json_text import NOT_READ, json_document, json_line
from rollout.model.plan import FORMAT_VERSION, Rolling, RolloutPlan, Wave
from rollout.model.policy import Policy
from rollout.model.quantity import Count
from rollout.model.text import is_object_name
from rollout.planning.eligibility.pools import ordered
from rollout.planning.plan.rules import impossible_rules

# In bytes. A plan of 5,000 nodes that warns of 30,000 pods has 10 MB and 240,000 values.
LARGEST_DOCUMENT = 32 << 20
# A value of one or two bytes may take a hundred in memory.
_MOST_VALUES = 1_000_000
# Characters of what a document says that go into an error.
_EXCERPT = 200
_MAKE_ANEW = "Make a new one with `rollout plan --out FILE`."
_OTHER_VERSION = "Apply it with the version of rollout that made it, or make a new plan."
# How msgspec begins what it says of a word that is none of an enum's.
_STRANGE_WORD = "Invalid enum value"


class _Header(msgspec.Struct):
    """What every version of the format begins with."""

    format_version: str


class _Rules(msgspec.Struct):
    """The parts of a document that say what is to be done, as they are written."""

    policy: dict[str, Any]
    selection: dict[str, Any]


def _encode(value: object) -> object:
    """Write a count of nodes as a number, as Kubernetes writes an IntOrString: `3`, but `"25%"`."""
    if isinstance(value, Count) and not value.is_share:
        return int(value)
    return str(value)


def _decode(kind: Any, value: Any) -> Any:
    """Read a count or a duration. Earlier documents have every count as text."""
    if kind is Count and type(value) is int:
        value = str(value)
    if isinstance(value, str):
        try:
            return kind.parse(value)
        except UsageError as error:
            raise ValueError(error.message) from error
    raise ValueError(f"a {kind.__name__} is written as text")


def sealed(plan: RolloutPlan) -> RolloutPlan:
    """Return the plan under its identity: a digest of all the rest of it, so that an edited file betrays itself.

    A saved plan is run with today's blockers and warnings.
    """
    digest = hashlib.sha256(json_line(replace(plan, plan_id=""), _encode))
    return replace(plan, plan_id=digest.hexdigest()[:16])


def _identity_as_written(data: bytes) -> str:
    """Digest of a document with the fields that it has: a plan saved before a field was added is still itself."""
    compact = msgspec.json.format(data, indent=-1)
    content = {**msgspec.json.decode(compact, type=dict[str, msgspec.Raw]), "plan_id": msgspec.Raw(b'""')}
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:16]


def encode_plan(plan: RolloutPlan) -> bytes:
    """Return the plan as JSON for people and files, ending in a newline."""
    return json_document(plan, _encode)


def policy_document(policy: Policy) -> dict[str, Any]:
    """Return the rules as they stand in a plan's document."""
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(policy, enc_hook=_encode))
    return document


def read_policy(document: object) -> Policy | None:
    """Return the rules in a document, with defaults where it has none; None for what are no rules."""
    try:
        return msgspec.convert(document, Policy, dec_hook=_decode)
    except msgspec.ValidationError:
        return None


def decode_plan(data: bytes, origin: str) -> RolloutPlan:
    """Return the plan in a document; `PlanFileError`, which names the `origin`, for what is no complete plan."""
    _check_size(data, origin)
    _check_version(data, origin)
    try:
        plan = msgspec.json.decode(data, type=RolloutPlan, dec_hook=_decode)
        rules = msgspec.json.decode(data, type=_Rules)
        identity = _identity_as_written(data)
    except NOT_READ as error:
        raise _not_read(str(error)[:_EXCERPT], origin) from error
    if plan.plan_id != identity:
        raise PlanFileError(f"{origin} has been edited since it was made", hint=_MAKE_ANEW)
    _check_rules(plan, rules, origin)
    if wrong := next(_impossible(plan), ""):
        raise PlanFileError(f"{origin} is not a plan made by rollout: {wrong[:_EXCERPT]}", hint=_MAKE_ANEW)
    return plan


def _not_read(why: str, origin: str) -> PlanFileError:
    """Say that a document was not read; an unknown word in place of a fixed one is a newer version's."""
    if why.startswith(_STRANGE_WORD):
        word = why.removeprefix(_STRANGE_WORD).strip()
        why, hint = f"it has a word that this program does not know: {word}", _OTHER_VERSION
        return PlanFileError(f"{origin} is not a complete plan: {why}", hint=hint)
    return PlanFileError(f"{origin} is not a complete plan: {why}", hint=_MAKE_ANEW)


def _check_size(data: bytes, origin: str) -> None:
    if len(data) > LARGEST_DOCUMENT:
        raise PlanFileError(f"{origin} is larger than {LARGEST_DOCUMENT >> 20} MiB", hint=_MAKE_ANEW)
    if sum(data.count(sign) for sign in (b",", b"[", b"{")) > _MOST_VALUES:
        raise PlanFileError(f"{origin} holds more than {_MOST_VALUES} values", hint=_MAKE_ANEW)


def _check_version(data: bytes, origin: str) -> None:
    try:
        version = msgspec.json.decode(data, type=_Header).format_version
    except NOT_READ as error:
        raise PlanFileError(f"{origin} is not a rollout plan: {str(error)[:_EXCERPT]}", hint=_MAKE_ANEW) from error
    if version.split(".")[0] != FORMAT_VERSION.split(".")[0]:
        raise PlanFileError(
            f"{origin} has the plan format {version[:_EXCERPT]}; this program reads {FORMAT_VERSION}",
            hint=_OTHER_VERSION,
        )


def _check_rules(plan: RolloutPlan, rules: _Rules, origin: str) -> None:
    selection = msgspec.to_builtins(plan.selection)
    unknown = [*_unknown(rules.policy, policy_document(plan.policy), "policy")]
    unknown += _unknown(rules.selection, selection, "selection")
    if unknown:
        raise PlanFileError(
            f"{origin} has a rule that this program does not know: {unknown[0][:_EXCERPT]}", hint=_OTHER_VERSION
        )


def _unknown(written: Any, understood: Any, at: str) -> Iterator[str]:
    """Where a document says more than was understood of it, in the order in which it says it."""
    if isinstance(written, dict) and isinstance(understood, dict):
        for name, value in written.items():
            if name in understood:
                yield from _unknown(value, understood[name], f"{at}.{name}")
            else:
                yield f"{at}.{name}"
    elif isinstance(written, list) and isinstance(understood, list):
        for position, (value, item) in enumerate(zip(written, understood, strict=False)):
            yield from _unknown(value, item, f"{at}[{position}]")


def _impossible(plan: RolloutPlan) -> Iterator[str]:
    """Yield what no plan of ours says, though its shape allows it."""
    names = Counter(node.name for node in plan.nodes)
    yield from (f"{name!r} is not a Node name" for name in names if not is_object_name(name))
    yield from (f"{name!r} is planned more than once" for name, times in names.items() if times > 1)
    yield from (wrong for wave in plan.waves if wave.rolling for wrong in _impossible_rolling(wave, wave.rolling))
    yield from _impossible_pools(plan)
    yield from impossible_rules(plan.policy)


def _impossible_pools(plan: RolloutPlan) -> Iterator[str]:
    """Pools that have no order, or are those of nodes and not in the rules."""
    try:
        names = {"", *(ordered(plan.policy.pools) if plan.policy.pools else ())}
    except UsageError as error:
        yield error.message
    else:
        strange = (node for node in plan.nodes if node.pool not in names)
        yield from (f"{node.name} is of the pool {node.pool!r}, which has no rules" for node in strange)


def _impossible_rolling(wave: Wave, rules: Rolling) -> Iterator[str]:
    """Yield what would let nobody begin, or more than there is room for."""
    if strange := sorted({*rules.holds, *rules.begins} - {node.name for node in wave.nodes}):
        yield f"wave {wave.index} rolls over {strange[0]!r}, which is none of its nodes"
    short = sorted({key for holds in rules.holds.values() for key in holds} - rules.capacity.keys())
    yield from (f"wave {wave.index} does not say how much there is of {key!r}" for key in short)
