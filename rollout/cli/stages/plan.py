"""The second stage: from what was gathered to a plan, and to its run; or a saved plan, held against the cluster."""

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rollout.adapters.journal import runs_directory
from rollout.adapters.local_files import current_reader, distrust, open_output
from rollout.cli import wiring
from rollout.cli.log import stage
from rollout.cli.settings.rules import policy_of, probe_of, selection_of
from rollout.cli.settings.schema import Cluster, Settings
from rollout.cli.stages import gather, refusals
from rollout.cli.stages.gather import Connections, Gathered, Targets, close_labels, first_label
from rollout.cli.stages.journal import past_runs
from rollout.cli.terminal import say, show, shown_meanwhile
from rollout.errors import PlanFileError, StalePlanError
from rollout.model.cluster import ClusterSnapshot, Node
from rollout.model.gates import GatePolicy
from rollout.model.plan import ExclusionReason, RolloutPlan, WarningKind
from rollout.model.policy import Policy, Selection
from rollout.model.text import counted, printable, shortened
from rollout.planning.eligibility.evidence import Proven
from rollout.planning.eligibility.selector import parse_selector
from rollout.planning.plan.build import PlanInputs, build_plan
from rollout.planning.plan.document import LARGEST_DOCUMENT, decode_plan
from rollout.planning.plan.rules import relaxed_rules
from rollout.planning.plan.staleness import Difference, changes
from rollout.report.plan_screen import brief_text, file_text
from rollout.report.sentences import extent

if TYPE_CHECKING:
    from rollout.cli.stages.execute import Run, RunSettings

_MOST_CHANGES = 10
# A plan that was saved before these counts as another's: its rules are shown.
_LATEST = 500
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
    file: str = ""
    unattended: bool = False
    chosen: Policy | None = None
    proven: Proven | None = None


def load_intent(file: Path | None, settings: Settings) -> Intent:
    """What the settings say; the saved plan's nodes and rules where there is one."""
    policy = policy_of(settings)
    if file is None:
        return Intent(selection_of(settings), policy)
    document = _read(file)
    saved = decode_plan(document, str(file))
    return Intent(saved.selection, saved.policy, saved, str(file), chosen=saved.policy if _is_own(document) else policy)


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


def note_saved(document: bytes) -> None:
    """Remember a plan by its digest; where nothing can be written it counts as another's."""
    with suppress(OSError):
        descriptor = open_output(_saved_list(), os.O_WRONLY | os.O_APPEND, make_folders=True)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(f"{_digest(document)}\n".encode())


def _is_own(document: bytes) -> bool:
    """Whether this very plan was saved here; a list that others may write says nothing."""
    with suppress(OSError):
        path = _saved_list()
        return not distrust(path, current_reader()) and _digest(document) in path.read_text("ascii").split()[-_LATEST:]
    return False


def _digest(document: bytes) -> str:
    return hashlib.sha256(document).hexdigest()


def _saved_list() -> Path:
    return runs_directory().parent / "saved-plans"


def gathered_by(connections: Connections, intent: Intent, settings: Settings) -> Gathered:
    """All that the plan is made of; refused without the rights, or beside an unfinished rollout."""
    namespace = settings.lock.namespace
    refusals.refuse_without_rights(connections, intent.policy.drain, namespace, unattended=intent.unattended)
    snapshot = gather.read_cluster(connections, namespace)
    refusals.refuse_unfinished(connections, snapshot.nodes, namespace)
    probe = probe_of(settings, intent.policy.detect)
    targets = gather.ask_hosts(snapshot.nodes, connections, intent.selection, settings.ssh, probe)
    return Gathered(connections, snapshot, targets)


def planned_run(intent: Intent, gathered: Gathered, settings: "RunSettings", *, quiet: bool) -> "Run":
    """What is to be run, after showing it unless `quiet`."""
    from rollout.cli.stages.execute import run_of

    decided = decide(intent, gathered.snapshot, gathered.targets)
    if not quiet and intent.saved:
        show(file_text(decided, intent.file, settings.width))
    elif not quiet:
        show(shown(decided, gathered.snapshot, settings.settings.cluster, settings.width))
    conceded = warn_of_relaxed_rules(decided.policy, "the saved plan has", intent.chosen) if intent.saved else ()
    selected = gathered.targets.number_of(decided.selection)
    return run_of(settings, gathered, decided, selected, conceded)


def decide(intent: Intent, snapshot: ClusterSnapshot, targets: Targets) -> RolloutPlan:
    """A new plan; or the saved one with what stands in its way now, `StalePlanError` where it does not fit any more."""
    labels = dict.fromkeys((intent.policy.spread_by, *(pool.spread_by or "" for pool in intent.policy.pools)))
    useless = filter(None, (useless_spreading(snapshot.nodes, label) for label in labels))
    nobody = useless_control_plane(snapshot.nodes, intent.policy.control_plane_selector)
    for warning in (*useless, *nobody, *_idle_gates(intent.policy.gates)):
        say(f"warning: {warning}")
    inputs = inputs_of(intent, snapshot, targets)
    with stage("plan") as note, shown_meanwhile("making the plan"):
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
        proven=intent.proven,
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


def shown(plan: RolloutPlan, snapshot: ClusterSnapshot, cluster: Cluster, width: int | None) -> str:
    """What is going to be run, in the few lines that stand before a question."""
    return brief_text(plan, zones=zones(snapshot), width=width, where=where(plan, cluster))


def where(plan: RolloutPlan, cluster: Cluster) -> str:
    """What the operator calls the cluster, with its address."""
    name = cluster.name or wiring.context_of(cluster)
    return f"{name} ({plan.cluster.server})" if name else plan.cluster.server


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
    """A sentence for settings that do nothing without another: who gives them believes in a gate that is not there."""
    if not gates.alerts.url and (gates.alerts.pattern or gates.alerts.match_only):
        yield "alerts.filter-regexp has no effect without alerts.prometheus-url: no alerts are read"
    if gates.windows.wait and not gates.windows.windows:
        yield "gates.wait-window has no effect without --window: nodes start at any time"


def useless_spreading(nodes: Sequence[Node], label: str) -> str:
    """What to warn of where no node has the label of `--spread-by`, so that it keeps nothing apart; else empty."""
    if not label or any(label in node.labels for node in nodes):
        return ""
    return f"--spread-by has no effect: {close_labels(label, nodes)}"


def useless_control_plane(nodes: Sequence[Node], selector: str) -> Iterator[str]:
    """A warning where `waves.control-plane-selector` chooses no node; none where it chooses one, or is not given."""
    if selector and not any(parse_selector(selector).matches(node.labels) for node in nodes):
        yield f"waves.control-plane-selector has no effect: {close_labels(first_label(selector), nodes)}"


def warn_of_held(plan: RolloutPlan) -> None:
    """Say which nodes a plan leaves out for what was seen of their version, one sentence a version."""
    held = [left for left in plan.excluded if left.reason is ExclusionReason.VERSION_HELD]
    for message in dict.fromkeys(left.message for left in held):
        nodes = sum(left.message == message for left in held)
        say(f"warning: {counted(nodes, 'node')} left out: {printable(message)}")


def despite_hold(plan: RolloutPlan) -> str:
    """What a question adds where nodes are taken in spite of their version's hold; empty where none is."""
    nodes = sum(warning.kind is WarningKind.VERSION_HELD for warning in plan.warnings)
    return f", {nodes} of them into a version that is held" if nodes else ""
