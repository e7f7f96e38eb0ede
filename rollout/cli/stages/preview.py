import secrets
from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import typer
from msgspec import Struct
from msgspec.structs import replace

from rollout.adapters.local_files import write_whole
from rollout.cli import wiring
from rollout.cli.settings.reading import PLANNED, CommandSettings
from rollout.cli.stages.cluster import Connections
from rollout.cli.stages.hosts import ask_hosts
from rollout.cli.stages.prepare import inputs_of, load_saved, make_plan
from rollout.cli.stages.refusals import blockers_not_allowed
from rollout.cli.stages.rollout_spec import RolloutSpec
from rollout.cli.stages.screens import next_command_without_waves, zone_by_node
from rollout.cli.stages.selection import similar_names_hint
from rollout.cli.stages.status import read_unfinished_summary
from rollout.cli.terminal import say, show_progress
from rollout.errors import ExitCode, UsageError
from rollout.execution.record.memory import require_readable_memory
from rollout.gather.cluster.copying import CopiedPace, encode_copy
from rollout.gather.cluster.snapshot import CachedObjects
from rollout.model.cluster import ClusterSnapshot, Pod
from rollout.model.plan import Blocker, ExclusionReason, RolloutPlan
from rollout.model.policy import DrainPolicy
from rollout.model.progress import wrongly_left_out
from rollout.model.text import shell_word
from rollout.planning.drain.completion import seconds_left_by_owner
from rollout.planning.plan.build import PlanInputs, decide
from rollout.planning.plan.document import encode_plan
from rollout.planning.plan.explanation import explain
from rollout.planning.plan.finish_by import Finish, smallest_limit
from rollout.planning.play.pace import Pace
from rollout.ports import ClusterApi
from rollout.report.markdown import plan_markdown
from rollout.report.plan_screen import blocked_line, explanation_text, plan_text
from rollout.report.status import FollowUp

_DOES_NOT_START = (
    "apply cannot start until it has ended, or until you undo it with `rollout abort`."
)
NOT_WITH_SAVED = "cannot be used with a saved plan, which is shown as it is"
_DATE = "%a %Y-%m-%d %H:%M %Z"


class Preview(Struct, frozen=True):
    plan: RolloutPlan
    # When the plan ends with the limit of --finish-by, None without --finish-by.
    finish: Finish | None
    blockers: Sequence[Blocker]
    is_late: bool

    @property
    def is_runnable(self) -> bool:
        return bool(self.plan.waves) and not (self.blockers or self.is_late)


def complete_inputs(
    connections: Connections, spec: RolloutSpec, cluster: ClusterSnapshot
) -> PlanInputs:
    # Planning needs no right to read the memory.
    if not cluster.memory.denied:
        require_readable_memory(cluster.memory)
    return inputs_of(spec, cluster, ask_hosts(connections, spec, cluster.nodes))


def write_copy(file: Path, inputs: PlanInputs, answers: CachedObjects, *, anonymous: bool) -> None:
    write_whole(file, cluster_copy(inputs, answers, anonymous=anonymous))
    say(f"to rehearse it, run: rollout lab up --like {shell_word(str(file))}")


def make_preview(inputs: PlanInputs, finish_by: datetime | None, allow: Container[str]) -> Preview:
    """With `finish_by`, use the smallest unavailable limit that meets it."""
    if finish_by is None:
        plan = make_plan(inputs)
        return Preview(plan, None, blockers_not_allowed(plan, allow), is_late=False)
    with show_progress("looking for the smallest --max-unavailable"):
        finish = smallest_limit(inputs, finish_by)
    say(_finish_text(finish, finish_by))
    # The search printed no warnings, so plan again with its limit.
    plan = make_plan(replace(inputs, policy=finish.plan.policy))
    is_late = not finish.is_by(finish_by)
    return Preview(plan, finish, blockers_not_allowed(plan, allow), is_late=is_late)


def _finish_text(finish: Finish, finish_by: datetime) -> str:
    if not finish.plan.waves:
        return "nothing to do"
    day = f"{finish_by.astimezone():{_DATE}}"
    limit = f"--max-unavailable {finish.limit}"
    failure = f"cannot finish by {day} with any --max-unavailable"
    if finish.at is None:
        return f"{failure}: the windows in the next two years are too short"
    end = f"about {finish.at.astimezone():{_DATE}}"
    if finish.is_by(finish_by):
        return f"{limit} is enough to finish by {day} ({end})"
    return f"{failure}; the earliest end is {end}, with {limit}; {finish.slowest_wave}"


def _apply_command(spec: RolloutSpec, saved_to: Path | None, finish: Finish | None) -> str:
    if saved_to is not None:
        return f"rollout apply {shell_word(str(saved_to))}"
    command = "rollout apply"
    version_to_leave = spec.policy.rollback
    if version_to_leave:
        command = f"rollout rollback {shell_word(version_to_leave)}"
    limit = f" --max-unavailable {finish.limit}" if finish else ""
    return spec.settings.with_typed_settings(command) + limit


def show_preview(
    api: ClusterApi,
    spec: RolloutSpec,
    snapshot: ClusterSnapshot,
    preview: Preview,
    saved_to: Path | None,
) -> None:
    plan = preview.plan
    run_command = _apply_command(spec, saved_to, preview.finish) if preview.is_runnable else ""
    output = spec.settings.output
    follow_up = read_unfinished_summary(api, spec.namespace, snapshot.nodes).follow_up
    why_not_yet = ""
    if follow_up.is_first:
        why_not_yet = f"{follow_up.sentence} {_DOES_NOT_START}"
        if output.as_json:
            say(f"{why_not_yet} See: {follow_up.command}")
    text = partial(
        plan_text,
        plan,
        zone_by_node=zone_by_node(snapshot),
        width=output.width,
        now=wiring.now(),
        cluster_name=wiring.cluster_place(spec.settings, api),
        unfinished_rollout=why_not_yet,
        why_blocked="" if why_not_yet else blocked_line(preview.blockers),
        next_step=_next_command(plan, spec.settings, follow_up, run_command),
    )
    output.show(encode_plan(plan), text, nodes=[node.name for node in plan.nodes])


def _next_command(
    plan: RolloutPlan, settings: CommandSettings, follow_up: FollowUp, run_command: str
) -> str:
    """`follow_up` is about the unfinished rollout. `run_command` is empty if nothing can run."""
    # A lead is a condition, such as "After fixing web-1".
    can_continue_now = not follow_up.lead
    has_nothing_else_to_run = not plan.waves
    should_continue = follow_up.is_first or (has_nothing_else_to_run and can_continue_now)
    if follow_up.command and should_continue:
        return follow_up.command
    return run_command or next_command_without_waves(plan, settings)


def write_plan(
    plan: RolloutPlan, snapshot: ClusterSnapshot, *, out: Path | None, markdown: Path | None
) -> None:
    if out is not None:
        write_whole(out, encode_plan(plan))
    if markdown is not None:
        write_whole(markdown, plan_markdown(plan, zone_by_node=zone_by_node(snapshot)).encode())


def plan_exit_code(preview: Preview, *, detailed: bool) -> ExitCode:
    """If not `detailed`, only blockers, lateness or no hosts are errors."""
    plan = preview.plan
    if preview.blockers or preview.is_late:
        return ExitCode.BLOCKED
    if not detailed:
        reasons = {left.reason for left in plan.excluded} - {ExclusionReason.EXCLUDED}
        is_none_reachable = not plan.waves and reasons == {ExclusionReason.UNREACHABLE}
        return ExitCode.PARTIAL if is_none_reachable else ExitCode.OK
    nodes_with_problem = wrongly_left_out(plan.excluded)
    has_deferred = any(node.reason is ExclusionReason.DEFERRED for node in nodes_with_problem)
    if plan.waves or has_deferred:
        return ExitCode.CHANGES
    return ExitCode.PARTIAL if nodes_with_problem else ExitCode.OK


def show_saved(file: Path, settings: CommandSettings) -> None:
    settings.refuse_typed_settings(PLANNED, why=NOT_WITH_SAVED, hint="Drop them.")
    plan = load_saved(file)
    blocked = blocked_line(plan.blockers)
    is_runnable = plan.waves and not blocked
    text = partial(
        plan_text,
        plan,
        zone_by_node={},
        width=settings.output.width,
        now=wiring.now(),
        cluster_name=f"{plan.cluster.server}, made {plan.created_at}",
        why_blocked=blocked,
        next_step=f"rollout apply {shell_word(str(file))}" if is_runnable else "",
    )
    settings.output.show(encode_plan(plan), text, nodes=[node.name for node in plan.nodes])
    if blocked:
        raise typer.Exit(ExitCode.BLOCKED)


def show_explanation(name: str, spec: RolloutSpec, inputs: PlanInputs) -> None:
    nodes = inputs.snapshot.nodes
    if not any(node.name == name for node in nodes):
        raise UsageError(f"there is no node {name}", hint=similar_names_hint(name, nodes))
    decisions = decide(inputs)
    explanation = explain(decisions, name)
    text = partial(explanation_text, explanation, decisions.plan.estimate)
    spec.settings.output.show(explanation, text, is_prose=True, nodes=[name])


def cluster_copy(inputs: PlanInputs, answers: CachedObjects, *, anonymous: bool) -> bytes:
    """Return the answers and durations from which the same plan can be made."""
    # Hashes replace names and labels; their key is not kept.
    key = secrets.token_bytes(32) if anonymous else b""
    snapshot = inputs.snapshot
    drain = inputs.policy.drain
    pace = Pace.of(snapshot.nodes, inputs.past, snapshot.pods)
    seconds_by_owner = dict[str, tuple[int, int]]()
    for uid, grace in _longest_grace_by_owner(snapshot.pods, drain).items():
        ending = pace.ending_seconds_of((uid,), grace)
        starting = pace.starting_seconds((uid,))
        seconds_by_owner[uid] = (ending, starting)
    seconds_to_complete = dict[str, float]()
    if drain.completion.is_used:
        seconds_to_complete = seconds_left_by_owner(snapshot, drain)
    reboot_seconds = pace.reboot_seconds(before_reboot=0, nodes=1)
    copied_pace = CopiedPace(reboot_seconds, seconds_by_owner, seconds_to_complete)
    return encode_copy(answers, inputs.observations, copied_pace, key)


def _longest_grace_by_owner(pods: Sequence[Pod], drain: DrainPolicy) -> Mapping[str, int]:
    longest_by_owner = dict[str, int]()
    for pod in pods:
        belongs_to_its_node = pod.owner and pod.owner.kind in ("DaemonSet", "Node")
        if not pod.owner or belongs_to_its_node:
            continue
        longest = longest_by_owner.get(pod.owner.uid, 0)
        longest_by_owner[pod.owner.uid] = max(longest, drain.grace_of(pod.grace_period))
    return longest_by_owner
