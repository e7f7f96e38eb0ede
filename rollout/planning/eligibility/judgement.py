from collections.abc import Iterable, Iterator
from datetime import datetime

from msgspec import Struct, field
from msgspec.structs import replace

from rollout.model.finding import MaybeHeldVersion, NodeFinding
from rollout.model.memory import MOST_NODES_OF_VERSION, NO_MEMORY, Memory
from rollout.model.own_node import OwnNode
from rollout.model.plan import PlannedNode, PlanWarning
from rollout.model.policy import Selection
from rollout.model.quantity import Duration
from rollout.model.text import version_numbers
from rollout.model.update_checks import LONGEST_SILENCE
from rollout.model.warning_finding import BackingOffNodeTaken, HeldVersionTaken
from rollout.planning.eligibility.evidence import ProvenVersions
from rollout.planning.eligibility.memory import why_all_paused, why_backing_off, why_held
from rollout.planning.eligibility.versions import NO_VERSIONS, KnownVersions
from rollout.wording.warnings import warning


class EligibilityInputs(Struct, frozen=True):
    """What decides, besides node and host, whether a node may be rebooted.

    `retried` nodes are tried whatever the `memory` of earlier rollouts says.
    """

    # The API server's time.
    now: datetime | None = None
    memory: Memory = NO_MEMORY
    selection: Selection = field(default_factory=Selection)
    failure_limit: int = MOST_NODES_OF_VERSION
    include_held: bool = False
    # Leave out nodes that back off.
    unattended: bool = False
    retried: frozenset[str] = frozenset()
    # None if no evidence is required.
    proven: ProvenVersions | None = None
    own: OwnNode | None = None
    versions: KnownVersions = NO_VERSIONS
    longest_silence: Duration = LONGEST_SILENCE


def why_not_startable(
    node: str, staged_version: str, inputs: EligibilityInputs
) -> NodeFinding | None:
    memory = inputs.memory
    pause = why_all_paused(memory, inputs.now)
    if pause:
        return pause
    is_retried = node in inputs.retried
    held = why_held(memory, staged_version, inputs.failure_limit)
    ignores_hold = inputs.include_held or is_retried
    if held and not ignores_hold:
        return held
    missing_evidence = inputs.proven.why_unproven(staged_version) if inputs.proven else None
    if missing_evidence:
        return missing_evidence
    # A person wants the node rebooted now.
    heeds_backoff = inputs.unattended and not is_retried
    return why_backing_off(memory, node, inputs.now) if heeds_backoff else None


def why_not_bootable(
    node: str, running_version: str, staged_version: str | None, inputs: EligibilityInputs
) -> NodeFinding | None:
    """Return why a begun node may not boot into its staged version.

    None is an unknown version: perhaps held, and not proved.
    """
    # A pause only keeps other nodes from starting.
    inputs_without_pause = replace(inputs, memory=replace(inputs.memory, pause=None))
    finding = why_not_startable(node, staged_version or "", inputs_without_pause)
    if finding:
        return finding
    may_be_held = staged_version is None and node not in inputs.retried
    return why_maybe_held(running_version, inputs_without_pause) if may_be_held else None


def memory_warnings(
    planned: Iterable[PlannedNode], inputs: EligibilityInputs
) -> Iterator[PlanWarning]:
    for node in planned:
        subject = f"node/{node.name}"
        held = why_held(inputs.memory, node.staged_version, inputs.failure_limit)
        if held:
            yield warning(node.name, subject, HeldVersionTaken(held))
            continue
        backoff = why_backing_off(inputs.memory, node.name, inputs.now)
        if backoff:
            yield warning(node.name, subject, BackingOffNodeTaken(backoff))


def why_maybe_held(running_version: str, inputs: EligibilityInputs) -> MaybeHeldVersion | None:
    """Return a held version that a host may have staged, which is unknown.

    A host stages only later versions than its running one.
    """
    if inputs.include_held:
        return None
    for version in sorted(inputs.memory.versions):
        held = why_held(inputs.memory, version, inputs.failure_limit)
        if held and not _is_no_later(version, running_version):
            return MaybeHeldVersion(held)
    return None


def _is_no_later(version: str, running_version: str) -> bool:
    """Return False if the order is unknown."""
    if version == running_version:
        return True
    numbers = version_numbers(version)
    running_numbers = version_numbers(running_version)
    is_comparable = bool(numbers) and len(numbers) == len(running_numbers)
    return is_comparable and numbers <= running_numbers
