"""The second stage: from what was gathered to a plan; or a saved plan, held against what was gathered."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rollout.cli import wiring
from rollout.cli.log import stage
from rollout.cli.stages.gather import Targets
from rollout.cli.stages.journal import past_runs
from rollout.cli.stages.own_plans import is_own
from rollout.cli.stages.selection import useless_control_plane, useless_spreading
from rollout.cli.terminal import is_terminal, say
from rollout.errors import PlanFileError, StalePlanError
from rollout.model.cluster import ClusterSnapshot
from rollout.model.gates import AlertPolicy, GatePolicy, WindowPolicy
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy, Selection
from rollout.model.text import counted, printable, shortened
from rollout.planning.document import LARGEST_DOCUMENT, decode_plan
from rollout.planning.plan import PlanInputs, build_plan
from rollout.planning.relaxed_rules import relaxed_rules
from rollout.planning.staleness import Difference, changes
from rollout.report.sentences import extent
from rollout.report.tables import plan_text

_MOST_CHANGES = 10
_DECISIONS = logging.getLogger("rollout.decision")


@dataclass(frozen=True, slots=True)
class Intent:
    """What the operator wants: nodes and rules from flags, or a saved plan with its own.

    `unattended`: nobody is there who could have decided to try failed nodes again. `chosen` are rules that the operator
    has chosen for this command, or for the plan where they have saved it here themselves.
    """

    selection: Selection
    policy: Policy
    saved: RolloutPlan | None = None
    unattended: bool = False
    chosen: Policy | None = None


def load_intent(file: Path | None, selection: Selection, policy: Policy) -> Intent:
    """The saved plan's nodes and rules where there is one."""
    if file is None:
        return Intent(selection, policy)
    document = _read(file)
    saved = decode_plan(document, str(file))
    return Intent(saved.selection, saved.policy, saved, chosen=saved.policy if is_own(document) else policy)


def load_plan(path: Path) -> RolloutPlan:
    """A saved plan, whole and as it was saved; `PlanFileError` otherwise."""
    return decode_plan(_read(path), str(path))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(LARGEST_DOCUMENT + 1)
    except OSError as error:
        raise PlanFileError(
            f"cannot read the plan {path}: {error.strerror}",
            hint="Save one with: rollout plan --out FILE. Nodes are chosen with --node NAME.",
        ) from error


def decide(intent: Intent, snapshot: ClusterSnapshot, targets: Targets) -> RolloutPlan:
    """A new plan; or the saved one with what stands in its way now, `StalePlanError` where it does not fit any more."""
    labels = dict.fromkeys((intent.policy.spread_by, *(pool.spread_by or "" for pool in intent.policy.pools)))
    useless = filter(None, (useless_spreading(snapshot.nodes, label) for label in labels))
    nobody = useless_control_plane(snapshot.nodes, intent.policy.control_plane_selector)
    for warning in (*useless, *nobody, *_idle_gates(intent.policy.gates)):
        say(f"warning: {warning}")
    inputs = inputs_of(intent, snapshot, targets)
    with stage("plan") as note:
        fresh = build_plan(inputs)
        note(f"{extent(fresh)}, {len(fresh.excluded)} left out, {counted(len(fresh.blockers), 'blocker')}")
    _tell_decisions(fresh)
    if intent.saved is None:
        return fresh
    _refuse_stale(intent.saved, inputs)
    return replace(intent.saved, blockers=fresh.blockers, warnings=fresh.warnings)


def _tell_decisions(plan: RolloutPlan) -> None:
    """For the log: what the plan does with each node, whoever shows it or not."""
    if not _DECISIONS.isEnabledFor(logging.INFO):
        return
    for wave in plan.waves:
        _DECISIONS.info("wave %d: %s (%s)", wave.index, ", ".join(node.name for node in wave.nodes), wave.because)
    for exclusion in plan.excluded:
        _DECISIONS.info("%s is left out: %s: %s", exclusion.node, exclusion.reason, exclusion.message)
    for blocker in plan.blockers:
        _DECISIONS.info("blocker %s on %s: %s: %s", blocker.kind, blocker.node, blocker.object, blocker.message)
    for warning in plan.warnings:
        _DECISIONS.debug("warning %s on %s: %s: %s", warning.kind, warning.node, warning.object, warning.message)


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
        own_node=targets.own_node,
        unattended=intent.unattended,
    )


def _refuse_stale(saved: RolloutPlan, fresh: PlanInputs) -> None:
    differences = tuple(_grouped(changes(saved, fresh)))
    if differences:
        only, details = (f": {differences[0]}", ()) if len(differences) == 1 else ("", differences)
        raise StalePlanError(
            f"the plan {saved.plan_id} no longer matches the cluster{only}",
            details=details,
            hint="Make a new one with `rollout plan --out FILE`, and review it.",
        )


def _grouped(differences: Sequence[Difference]) -> Iterator[str]:
    """A line for each kind of difference, with the nodes that it is of; what is of one node alone in full."""
    alike: dict[str, list[Difference]] = {}
    for difference in differences:
        alike.setdefault(difference.what, []).append(difference)
    for what, of_nodes in list(alike.items())[:_MOST_CHANGES]:
        names = [difference.node for difference in of_nodes]
        yield printable(str(of_nodes[0])) if len(names) == 1 else f"{printable(what)}: {shortened(names)}"
    if len(alike) > _MOST_CHANGES:
        yield f"and {len(alike) - _MOST_CHANGES} other differences"


def shown(plan: RolloutPlan, snapshot: ClusterSnapshot, width: int | None) -> str:
    """The plan for the operator, saved or not: what is going to be run, with the rules as they stand now."""
    return plan_text(plan, zones=zones(snapshot), width=width, now=wiring.system_clock().now(), signs=is_terminal())


def zones(snapshot: ClusterSnapshot) -> Mapping[str, str]:
    """Each node's zone, for tables."""
    return {node.name: node.zone for node in snapshot.nodes}


def warn_of_relaxed_rules(policy: Policy, origin: str, chosen: Policy | None = None) -> tuple[str, ...]:
    """Warn of what these rules give up, on standard error whatever the output is; the same as sentences.

    What the operator has `chosen` likewise is nothing to warn of.
    """
    known = relaxed_rules(chosen or Policy())
    sentences = tuple(f"{origin} {sentence}" for sentence in relaxed_rules(policy) if sentence not in known)
    for sentence in sentences:
        say(f"warning: {sentence}")
    return sentences


def _idle_gates(gates: GatePolicy) -> Iterator[str]:
    """A sentence for flags that do nothing without another: whoever gives them believes in a gate that is not there."""
    if idle := ", ".join(_idle_of_alerts(gates.alerts)):
        yield f"{idle} has no effect without --prometheus-url: no alerts are read"
    if idle := ", ".join(_idle_of_windows(gates.windows)):
        yield f"{idle} has no effect without --window: nodes start at any time"


def _idle_of_alerts(alerts: AlertPolicy) -> Iterator[str]:
    if not alerts.url and alerts.pattern:
        yield "--alert-filter-regexp"
    if not alerts.url and alerts.match_only:
        yield "--alert-filter-match-only"
    if not alerts.url and alerts.firing_only:
        yield "--alert-firing-only"


def _idle_of_windows(windows: WindowPolicy) -> Iterator[str]:
    if not windows.windows and windows.fit:
        yield "--window-fit"
    if not windows.windows and windows.wait:
        yield "--wait-window"
