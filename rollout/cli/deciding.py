"""The deciding stage that plan and apply share: from what was gathered to a plan, or a saved plan held against it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rollout.cli import wiring
from rollout.cli.gathering import Targets
from rollout.cli.idle_gates import idle_gates
from rollout.cli.recording import past_runs
from rollout.cli.selecting import useless_spreading
from rollout.cli.terminal import say
from rollout.errors import PlanFileError, StalePlanError
from rollout.model.cluster import ClusterSnapshot
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy, Selection
from rollout.planning.document import LARGEST_DOCUMENT, decode_plan
from rollout.planning.plan import PlanInputs, build_plan
from rollout.planning.staleness import changes
from rollout.report.text import listed

_MOST_CHANGES = 10


@dataclass(frozen=True, slots=True)
class Intent:
    """What the operator wants: nodes and rules from flags, or a saved plan with its own."""

    selection: Selection
    policy: Policy
    saved: RolloutPlan | None = None


def load_intent(file: Path | None, selection: Selection, policy: Policy) -> Intent:
    """The saved plan's nodes and rules where there is one."""
    if file is None:
        return Intent(selection, policy)
    saved = load_plan(file)
    return Intent(saved.selection, saved.policy, saved)


def load_plan(path: Path) -> RolloutPlan:
    """A saved plan, whole and as it was saved; `PlanFileError` otherwise."""
    try:
        with path.open("rb") as stream:
            return decode_plan(stream.read(LARGEST_DOCUMENT + 1), str(path))
    except OSError as error:
        raise PlanFileError(f"cannot read the plan {path}: {error.strerror}") from error


def decide(intent: Intent, snapshot: ClusterSnapshot, targets: Targets) -> RolloutPlan:
    """A new plan; or the saved one with what stands in its way now, `StalePlanError` where it does not fit any more."""
    useless = useless_spreading(snapshot.nodes, intent.policy.spread_by)
    for warning in (*([useless] if useless else ()), *idle_gates(intent.policy.gates)):
        say(f"warning: {warning}")
    inputs = inputs_of(intent, snapshot, targets)
    fresh = build_plan(inputs)
    if intent.saved is None:
        return fresh
    _refuse_stale(intent.saved, inputs)
    return replace(intent.saved, blockers=fresh.blockers, warnings=fresh.warnings)


def inputs_of(intent: Intent, snapshot: ClusterSnapshot, targets: Targets) -> PlanInputs:
    """All that a plan is made from, at this moment."""
    return PlanInputs(
        snapshot=snapshot,
        observations=targets.observations,
        selected=targets.selected,
        selection=intent.selection,
        policy=intent.policy,
        created_at=wiring.system_clock().now(),
        past=past_runs(snapshot.identity),
    )


def _refuse_stale(saved: RolloutPlan, fresh: PlanInputs) -> None:
    found = changes(saved, fresh)
    if found:
        raise StalePlanError(
            f"the plan {saved.plan_id} does not fit the cluster any more: {listed(found, _MOST_CHANGES)}",
            hint="Make a new one with `rollout plan --out FILE`, and look at it.",
        )


def zones(snapshot: ClusterSnapshot) -> Mapping[str, str]:
    """Each node's zone, for tables."""
    return {node.name: node.zone for node in snapshot.nodes}


def show_explanation(node: str, intent: Intent, snapshot: ClusterSnapshot, targets: Targets, *, as_json: bool) -> None:
    """Tell why a node is where it would be in a new plan."""
    from rollout.cli.terminal import show, show_bytes
    from rollout.model.json_text import json_document
    from rollout.planning.explanation import explain
    from rollout.planning.plan import decide as settle
    from rollout.report.explained import explanation_text

    found = explain(settle(inputs_of(intent, snapshot, targets)), node)
    if as_json:
        show_bytes(json_document(found))
    else:
        show(explanation_text(found))
