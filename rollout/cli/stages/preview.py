"""What `rollout plan` shows: a new plan, a saved one, or why a node is where it is."""

import secrets
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import typer

from rollout.adapters.local_files import write_whole
from rollout.cli import wiring
from rollout.cli.settings.reading import PLANNED, Given
from rollout.cli.stages.prepare import load_saved
from rollout.cli.stages.request import Request
from rollout.cli.stages.screens import next_without_waves, zones
from rollout.cli.stages.selection import similar_names
from rollout.cli.stages.status import rollout_beside
from rollout.cli.terminal import say, show_progress
from rollout.errors import ExitCode, UsageError
from rollout.gather.cluster.copying import CopiedPace, copy_document
from rollout.gather.cluster.snapshot import CachedPages
from rollout.model.cluster import ClusterSnapshot
from rollout.model.plan import Blocker, ExclusionReason, RolloutPlan
from rollout.model.progress import excluded_by_trouble
from rollout.model.text import shell_word
from rollout.planning.plan.build import PlanInputs
from rollout.planning.plan.build import decide as decisions_of
from rollout.planning.plan.document import encode_plan
from rollout.planning.plan.explanation import explain
from rollout.planning.plan.finish_by import Finish, smallest_limit
from rollout.planning.play.pace import Pace
from rollout.ports import ClusterApi
from rollout.report.markdown import plan_markdown
from rollout.report.plan_screen import blocked_line, explanation_text, plan_text

_DOES_NOT_START = (
    "apply cannot start until it has ended, or until you undo it with `rollout abort`."
)
_DATE = "%a %Y-%m-%d %H:%M %Z"


def find_limit(inputs: PlanInputs, date: datetime) -> Finish:
    """Find the smallest limit that finishes by the date, and say when it finishes."""
    with show_progress("looking for the smallest --max-unavailable"):
        finish = smallest_limit(inputs, date)
    say(finish_text(finish, date))
    return finish


def finish_text(finish: Finish, date: datetime) -> str:
    if not finish.plan.waves:
        return "nothing to do"
    day = f"{date.astimezone():{_DATE}}"
    limit = f"--max-unavailable {finish.limit}"
    failure = f"cannot finish by {day} with any --max-unavailable"
    if finish.at is None:
        return f"{failure}: the windows of the next two years are not enough"
    end = f"about {finish.at.astimezone():{_DATE}}"
    if finish.is_by(date):
        return f"done by {day} with {limit}: {end}"
    return f"{failure}; the earliest is {end} with {limit}; {finish.obstacle}"


def apply_command(settings: Given, out: Path | None, finish: Finish | None) -> str:
    """Return the command that runs the plan: from its file, or made again with the same limit."""
    if out is not None:
        return f"rollout apply {shell_word(str(out))}"
    limit = f" --max-unavailable {finish.limit}" if finish else ""
    return settings.repeated("rollout apply") + limit


def show_preview(
    api: ClusterApi,
    request: Request,
    snapshot: ClusterSnapshot,
    plan: RolloutPlan,
    *,
    blockers: Sequence[Blocker],
    run_command: str,
) -> None:
    """Show a new plan; `run_command` runs it, and is empty if it should not be run as it is."""
    output = request.settings.output
    next_step = run_command or next_without_waves(plan, request.settings)
    other, _ = rollout_beside(api, request.namespace, snapshot.nodes)
    beside = f"{other.sentence} {_DOES_NOT_START}" if other.is_first else ""
    if beside and output.as_json:
        say(f"{beside} See: {other.command}")
    comes_first = bool(beside) or not (plan.waves or other.lead)
    if comes_first and other.command:
        next_step = other.command
    text = partial(
        plan_text,
        plan,
        zones=zones(snapshot),
        width=output.width,
        now=wiring.now(),
        where=wiring.cluster_place(request.settings, api),
        beside=beside,
        blocked="" if beside else blocked_line(blockers),
        next_step=next_step,
    )
    output.show(encode_plan(plan), text, nodes=[node.name for node in plan.nodes])


def write(
    plan: RolloutPlan, snapshot: ClusterSnapshot, *, out: Path | None, markdown: Path | None
) -> None:
    if out is not None:
        write_whole(out, encode_plan(plan))
    if markdown is not None:
        write_whole(markdown, plan_markdown(plan, zones=zones(snapshot)).encode())


def exit_code(plan: RolloutPlan, *, detailed: bool) -> ExitCode:
    """Return the exit code of a plan that can be run as it is.

    Without `detailed`, it is an error only if no host could be reached. With it, waiting nodes and
    nodes that could not be judged have exit codes of their own.
    """
    if not detailed:
        reasons = {left.reason for left in plan.excluded} - {ExclusionReason.EXCLUDED}
        is_blind = not plan.waves and reasons == {ExclusionReason.UNREACHABLE}
        return ExitCode.PARTIAL if is_blind else ExitCode.OK
    missing = excluded_by_trouble(plan.excluded)
    if plan.waves or any(node.reason is ExclusionReason.DEFERRED for node in missing):
        return ExitCode.CHANGES
    return ExitCode.PARTIAL if missing else ExitCode.OK


def show_saved(file: Path, settings: Given) -> None:
    """Show a saved plan as it was made."""
    settings.refuse_typed(
        PLANNED, "cannot be used with a saved plan, which is shown as it is", "Drop them."
    )
    plan = load_saved(file)
    blocked = blocked_line(plan.blockers)
    is_runnable = plan.waves and not blocked
    text = partial(
        plan_text,
        plan,
        zones={},
        width=settings.output.width,
        now=wiring.now(),
        where=f"{plan.cluster.server}, made {plan.created_at}",
        blocked=blocked,
        next_step=f"rollout apply {shell_word(str(file))}" if is_runnable else "",
    )
    settings.output.show(encode_plan(plan), text, nodes=[node.name for node in plan.nodes])
    if blocked:
        raise typer.Exit(ExitCode.BLOCKED)


def show_explanation(name: str, request: Request, inputs: PlanInputs) -> None:
    """Show why a node is where it would be in a new plan."""
    nodes = inputs.snapshot.nodes
    if not any(node.name == name for node in nodes):
        raise UsageError(f"there is no node {name}", hint=similar_names(name, nodes))
    decisions = decisions_of(inputs)
    explanation = explain(decisions, name)
    text = partial(explanation_text, explanation, decisions.plan.estimate)
    request.settings.output.show(explanation, text, is_prose=True, nodes=[name])


def cluster_copy(inputs: PlanInputs, answers: CachedPages, *, anonymous: bool) -> bytes:
    """Return a document of the API server's answers and of the pace at which this cluster reboots.

    `anonymous` hides names and labels by a key that nobody keeps.
    """
    key = secrets.token_bytes(32) if anonymous else b""
    snapshot = inputs.snapshot
    pace = Pace.of(snapshot.nodes, inputs.past, snapshot.pods)
    graces: dict[str, int] = {}
    for pod in snapshot.pods:
        # Pods that belong to their node return with it, as part of its reboot.
        if pod.owner and pod.owner.kind not in ("DaemonSet", "Node"):
            grace = inputs.policy.drain.grace_of(pod.grace_period)
            graces[pod.owner.uid] = max(grace, graces.get(pod.owner.uid, 0))
    owners = {
        uid: (pace.ending_of((uid,), grace), pace.starting((uid,))) for uid, grace in graces.items()
    }
    copied = CopiedPace(pace.reboot(0, 1), owners)
    return copy_document(answers, inputs.observations, copied, key)
