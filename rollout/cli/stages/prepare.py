from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from rollout.adapters.input_files import Trust, read_input
from rollout.adapters.input_trust import hint_of
from rollout.cli import wiring
from rollout.cli.log import stage
from rollout.cli.stages import refusals
from rollout.cli.stages.cluster import Connections, read_cluster
from rollout.cli.stages.hosts import Targets, ask_hosts
from rollout.cli.stages.metrics import observe_cluster
from rollout.cli.stages.observers import past_durations
from rollout.cli.stages.rollout_spec import RolloutSpec, Saved
from rollout.cli.stages.selection import similar_labels_hint
from rollout.cli.terminal import show_progress, warn
from rollout.errors import PlanFileError, StalePlanError
from rollout.execution.record.memory import require_readable_memory
from rollout.execution.record.unfinished import Unfinished
from rollout.execution.rollout.run_inputs import RunInputs
from rollout.model.cluster import ClusterSnapshot, Node
from rollout.model.host import Host
from rollout.model.plan import ExclusionReason, RolloutPlan
from rollout.model.policy import Policy
from rollout.model.selectors import parse_selector
from rollout.model.text import counted, grouped, printable, shortened
from rollout.planning.eligibility.evidence import ProvenVersions
from rollout.planning.plan.build import PlanInputs, build_plan
from rollout.planning.plan.document import LARGEST_DOCUMENT, decode_plan
from rollout.planning.plan.staleness import Difference, find_differences
from rollout.report.sentences import plan_extent

if TYPE_CHECKING:
    from rollout.report.metrics import Metrics

_MOST_CHANGES = 10
_SAVE_HINT = "Save a plan with: rollout plan --out FILE. To select a node, use --node NAME."


class PreparedRun(Struct, frozen=True):
    spec: RolloutSpec
    inputs: RunInputs
    targets: Targets

    @property
    def plan(self) -> RolloutPlan:
        return self.inputs.plan

    @property
    def hosts(self) -> Mapping[str, Host]:
        return {node.name: self.targets.hosts[node.name] for node in self.plan.nodes}

    @property
    def has_something_to_do(self) -> bool:
        return bool(self.plan.waves) or self.inputs.is_resumed or self.defers_own_node

    @property
    def defers_own_node(self) -> bool:
        """Whether another process must reboot this process's node."""
        return any(left.reason is ExclusionReason.DEFERRED for left in self.plan.excluded)


def inputs_of(
    spec: RolloutSpec,
    snapshot: ClusterSnapshot,
    targets: Targets,
    proven: ProvenVersions | None = None,
) -> PlanInputs:
    return PlanInputs(
        snapshot=snapshot,
        observations=targets.observations,
        # The plan lists excluded nodes, too.
        selected=targets.selected.before_exclude,
        selection=spec.selection,
        policy=spec.policy,
        created_at=wiring.now(),
        past=past_durations(snapshot.identity),
        own_node=targets.own_node,
        unattended=spec.unattended,
        proven=proven,
        longest_silence=spec.settings.detect.max_check_age,
    )


def make_plan(inputs: PlanInputs) -> RolloutPlan:
    warn(*_rules_without_effect(inputs.policy, inputs.snapshot.nodes))
    with stage("plan") as add_note, show_progress("making the plan"):
        plan = build_plan(inputs)
        excluded = len(plan.excluded)
        blockers = counted(len(plan.blockers), "blocker")
        add_note(f"{plan_extent(plan)}, {excluded} left out, {blockers}")
    return plan


def prepare(
    spec: RolloutSpec,
    snapshot: ClusterSnapshot,
    targets: Targets,
    proven: ProvenVersions | None = None,
) -> PreparedRun:
    """Make a plan, or use a saved one with today's blockers and warnings.

    Raises `StalePlanError` if the saved plan no longer matches the cluster.
    """
    plan_inputs = inputs_of(spec, snapshot, targets, proven)
    plan = make_plan(plan_inputs)
    if isinstance(spec.origin, Saved):
        saved = spec.origin.plan
        _require_fresh(saved, plan_inputs)
        plan = replace(saved, blockers=plan.blockers, warnings=plan.warnings)
    run_inputs = RunInputs(
        plan=plan,
        percentage_base=len(targets.selected.names),
        own_node=plan_inputs.own_node,
        unattended=plan_inputs.unattended,
        proven=plan_inputs.proven,
    )
    return PreparedRun(spec, run_inputs, targets)


class FreshRun(Struct, frozen=True):
    prepared: PreparedRun
    snapshot: ClusterSnapshot
    replaced: Unfinished | None


def prepare_fresh(
    connections: Connections,
    spec: RolloutSpec,
    metrics: "Metrics | None",
    *,
    may_replace_stopped: bool,
    proven: ProvenVersions | None = None,
) -> FreshRun:
    """Plan a new rollout, or raise why none may start, as `LockedError` does.

    `may_replace_stopped`: it may take over the nodes of a rollout that was stopped.
    """
    api = connections.api
    namespace = spec.namespace
    refusals.refuse_without_rights(api, namespace, spec.policy, unattended=spec.unattended)
    with_jobs = spec.policy.drain.completion.is_used
    snapshot = read_cluster(api, namespace, warns=False, with_jobs=with_jobs)
    require_readable_memory(snapshot.memory)
    replaced = refusals.find_replaced_rollout(
        api, namespace, snapshot.nodes, may_replace_stopped=may_replace_stopped
    )
    targets = ask_hosts(connections, spec, snapshot.nodes)
    observe_cluster(metrics, spec, targets.observations, snapshot)
    return FreshRun(prepare(spec, snapshot, targets, proven), snapshot, replaced)


def load_saved(file: Path) -> RolloutPlan:
    """Raise `PlanFileError` unless the file is exactly as it was saved."""
    try:
        content = read_input(file, most=LARGEST_DOCUMENT, trust=Trust.NOT_WRITABLE_BY_OTHERS)
    except OSError as error:
        raise PlanFileError(
            f"cannot read the plan {file}: {error.strerror}", hint=hint_of(error, _SAVE_HINT)
        ) from error
    return decode_plan(content, str(file))


def _require_fresh(saved: RolloutPlan, inputs: PlanInputs) -> None:
    lines = _difference_lines(find_differences(saved, inputs))
    if not lines:
        return
    left_out = len(lines) - _MOST_CHANGES
    if left_out > 0:
        lines = [*lines[:_MOST_CHANGES], f"and {counted(left_out, 'other difference')}"]
    raise StalePlanError(
        f"the plan {saved.plan_id} no longer matches the cluster",
        details=lines,
        hint="Make a new one with `rollout plan --out FILE`, and review it.",
    )


def _difference_lines(differences: Iterable[Difference]) -> list[str]:
    by_change = grouped((difference.change, difference) for difference in differences)
    lines = list[str]()
    for change, same_changes in by_change.items():
        if len(same_changes) == 1:
            lines.append(printable(str(same_changes[0])))
        else:
            nodes = shortened([difference.node for difference in same_changes])
            lines.append(f"{printable(change)}: {nodes}")
    return lines


def _rules_without_effect(policy: Policy, nodes: Sequence[Node]) -> Iterator[str]:
    spread_labels = [policy.spread_by, *(pool.spread_by for pool in policy.pools)]
    for label in dict.fromkeys(spread_labels):
        has_label = any(label in node.labels for node in nodes)
        if label and not has_label:
            yield f"--spread-by has no effect: {similar_labels_hint(label, nodes)}"
    selector = policy.control_plane_selector
    if selector and not any(parse_selector(selector).matches(node.labels) for node in nodes):
        hint = similar_labels_hint(selector, nodes)
        yield f"waves.control-plane-selector has no effect: {hint}"
    alerts = policy.gates.alerts
    if alerts.matchers and not alerts.url:
        yield (
            "alerts.matchers has no effect without alerts.prometheus-url, because no alerts are"
            " read"
        )
