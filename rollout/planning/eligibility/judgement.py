"""Whether a node may start, judged by what is remembered: pauses, held versions, evidence, rests."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

from rollout.model.memory import MOST_NODES_OF_VERSION, NO_MEMORY, Memory
from rollout.model.own_node import OwnNode
from rollout.model.plan import ExclusionReason, PlannedNode, PlanWarning, WarningKind
from rollout.model.policy import Selection
from rollout.model.text import shell_word
from rollout.planning.eligibility.evidence import Proven
from rollout.planning.eligibility.memory import why_held, why_resting
from rollout.planning.eligibility.versions import NO_VERSIONS, KnownVersions


@dataclass(frozen=True, slots=True)
class Rules:
    """By what all nodes of one decision are judged, beside the rules of their pool.

    `now` is the API server's time, None where it has not told it; `limit` is how many failures of a
    version are allowed. `unattended`: nodes that rest are left out, for nobody has decided to try
    them again. `retried` are nodes for which somebody has: nothing is held against these. `proven`
    is what another cluster has proved, None where it need not. `own` is the node under this
    process, whichever it is. `versions` are those that the cluster knows of.
    """

    now: datetime | None = None
    memory: Memory = NO_MEMORY
    selection: Selection = field(default_factory=Selection)
    limit: int = MOST_NODES_OF_VERSION
    include_held: bool = False
    unattended: bool = False
    retried: frozenset[str] = frozenset()
    proven: Proven | None = None
    own: OwnNode | None = None
    versions: KnownVersions = NO_VERSIONS


Objection = tuple[ExclusionReason, str]


def objection(node: str, version: str, rules: Rules) -> Objection | None:
    """Why a node with this version staged is left out for what is remembered, or None."""
    memory = rules.memory
    if why := memory.why_paused(rules.now):
        return ExclusionReason.PAUSED, why
    if rules.include_held or node in rules.retried:
        return None
    if why := why_held(memory, version, rules.limit):
        return (
            ExclusionReason.VERSION_HELD,
            f"{why} (`rollout release {shell_word(version)}`, or --allow held)",
        )
    if rules.proven and (why := rules.proven.why_lacking(version)):
        return ExclusionReason.UNPROVEN, why
    if rules.unattended and (why := why_resting(memory, node, rules.now)):
        return ExclusionReason.FAILED_RECENTLY, f"{why} (rollout release --node {node})"
    return None


def boot_objection(node: str, running: str, version: str | None, rules: Rules) -> Objection | None:
    """Return why a node in progress may not be booted into its staged version; None if it may.

    A pause does not stop nodes in progress. A `version` of None is not known: it may be held, and
    is not proven.
    """
    rules = replace(rules, memory=replace(rules.memory, pause=None))
    if found := objection(node, version or "", rules):
        return found
    is_known = version is not None or node in rules.retried
    why = "" if is_known else why_maybe_held(running, rules)
    return (ExclusionReason.VERSION_HELD, why) if why else None


def memory_warnings(planned: Iterable[PlannedNode], rules: Rules) -> Iterator[PlanWarning]:
    """Yield what is remembered against nodes that are planned all the same: whoever begins them should know."""
    for node in planned:
        subject = f"node/{node.name}"
        if why := why_held(rules.memory, node.staged_version, rules.limit):
            message = f"taken anyway, as asked for: {why}"
            yield PlanWarning(node.name, subject, message, WarningKind.VERSION_HELD)
        elif why := why_resting(rules.memory, node.name, rules.now):
            message = f"`rollout operate` would leave it out: {why}"
            yield PlanWarning(node.name, subject, message, WarningKind.FAILED_RECENTLY)


def why_maybe_held(running: str, rules: Rules) -> str:
    """Why a node is left out of whose staged version nobody tells: one that is held may be it.

    A version that is older than the one it runs, or the same, does not wait there.
    """
    if rules.include_held:
        return ""
    for version in sorted(rules.memory.versions):
        if not _is_past(version, running) and (why := why_held(rules.memory, version, rules.limit)):
            way_out = f"`rollout release {shell_word(version)}`, or --allow held"
            return f"{why}; it may be the one that waits here ({way_out})"
    return ""


def _is_past(version: str, running: str) -> bool:
    """Whether this version is no later than the one that runs; no where their numbers cannot be compared."""
    parts, running_parts = (
        [int(number) for number in re.findall(r"\d{1,18}", text)] for text in (version, running)
    )
    return version == running or (
        bool(parts) and len(parts) == len(running_parts) and parts <= running_parts
    )
