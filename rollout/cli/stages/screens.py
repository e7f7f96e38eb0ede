from collections.abc import Mapping, Sequence

from rollout.cli import terminal
from rollout.cli.settings.reading import CommandSettings
from rollout.cli.stages.prepare import PreparedRun
from rollout.cli.stages.rollout_spec import Fresh, Interrupted, RolloutSpec, Saved, Unattended
from rollout.cli.stages.status import why_closed
from rollout.execution.record.unfinished import RunState, Unfinished
from rollout.model.cluster import ClusterSnapshot
from rollout.model.plan import ExclusionReason, RolloutPlan
from rollout.model.policy import Policy
from rollout.model.progress import wrongly_left_out
from rollout.model.text import capitalize, counted, grouped, printable, shell_word
from rollout.planning.eligibility.candidates import is_control_plane
from rollout.planning.plan.rules import relaxed_rules
from rollout.report.plan_screen import brief_text, consequence_text, file_text
from rollout.report.unfinished import unfinished_heading

# Lines below the plan.
_QUESTION_LINES = 6
# Of the plan, even on a smaller screen.
_LEAST_LINES = 8


def new_run_text(run: PreparedRun, snapshot: ClusterSnapshot, place: str) -> str:
    origin = run.spec.origin
    if isinstance(origin, Saved) and run.plan.waves:
        return file_text(run.plan, str(origin.file), run.spec.settings.output.width)
    rollback = run.spec.policy.rollback
    command = f"rollout plan --rollback {shell_word(rollback)}" if rollback else "rollout plan"
    return brief_plan_text(run, snapshot, place, f"{command} -o wide")


def brief_plan_text(
    run: PreparedRun, snapshot: ClusterSnapshot, place: str, full_command: str
) -> str:
    settings = run.spec.settings
    policy = run.spec.policy
    screen_height = terminal.screen_lines()
    # None: the output is no terminal.
    height: int | None = None
    if screen_height:
        height = max(_LEAST_LINES, screen_height - _QUESTION_LINES)
    control_plane = [node.name for node in snapshot.nodes if is_control_plane(node, policy)]
    return brief_text(
        run.plan,
        zone_by_node=zone_by_node(snapshot),
        width=settings.output.width,
        height=height,
        cluster_name=place,
        next_step=next_command_without_waves(run.plan, settings),
        whole_command=settings.with_typed_settings(full_command),
        control_plane=frozenset(control_plane),
    )


def zone_by_node(snapshot: ClusterSnapshot) -> Mapping[str, str]:
    return {node.name: node.zone for node in snapshot.nodes}


def next_command_without_waves(plan: RolloutPlan, settings: CommandSettings) -> str:
    if not leaves_out_all_pending(plan):
        return ""
    # Doctor explains other reasons, status held versions.
    has_other_reasons = bool(_troubles(plan) - {ExclusionReason.VERSION_HELD})
    command = "rollout doctor" if has_other_reasons else "rollout status"
    return settings.with_typed_settings(command)


def leaves_out_all_pending(plan: RolloutPlan) -> bool:
    if plan.waves:
        return False
    may_have_update = any(left.update and not left.update.is_current for left in plan.excluded)
    return may_have_update or bool(_troubles(plan))


def _troubles(plan: RolloutPlan) -> frozenset[str]:
    """Return exclusion reasons that a person has to act on."""
    reasons = frozenset(node.reason for node in wrongly_left_out(plan.excluded))
    return reasons - {ExclusionReason.DEFERRED}


def start_notes(plan: RolloutPlan, policy: Policy) -> Sequence[str]:
    closed = why_closed(policy)
    if closed and not policy.gates.windows.wait:
        closed += " rollout does not wait for the next window, because gates.wait-window is false."
    return [line for line in (consequence_text(plan), closed) if line]


def replacement_text(unfinished: Unfinished, *, asks: bool) -> str:
    description = capitalize(unfinished_heading(unfinished, RunState.ENDED))
    if asks:
        return f"{description}. Answering yes discards it. To continue it instead: rollout resume"
    return f"{description}. This rollout replaces it."


def relaxed_notes(spec: RolloutSpec) -> Sequence[str]:
    match spec.origin:
        case Fresh() | Unattended(is_resumption=False):
            return []
        case Saved():
            return [f"the saved plan has {rule}" for rule in relaxed_rules(spec.policy)]
        case Interrupted() | Unattended():
            rules = relaxed_rules(spec.policy)
            return [f"continuing with the original {rule}" for rule in rules]


def held_notes(plan: RolloutPlan) -> Sequence[str]:
    held = [left for left in plan.excluded if left.reason is ExclusionReason.VERSION_HELD]
    by_message = grouped((left.message, left) for left in held)
    return [
        f"{counted(len(nodes), 'node')} left out: {printable(message)}"
        for message, nodes in by_message.items()
    ]
