"""`rollout plan`."""

from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rollout.cli import wiring
from rollout.cli.flags import argument, option, takes
from rollout.cli.settings.reading import PLANNED, RULES, Given
from rollout.cli.settings.rules import policy_of
from rollout.cli.settings.values import node_name, time_meant
from rollout.cli.terminal import say, shown_meanwhile
from rollout.errors import ExitCode, UsageError
from rollout.model.plan import ExclusionReason, RolloutPlan
from rollout.model.progress import excluded_by_trouble
from rollout.model.text import shell_word

if TYPE_CHECKING:
    from rollout.cli.stages.session import Session
    from rollout.gather.cluster.snapshot import Kept
    from rollout.planning.plan.build import PlanInputs

_FINISH_BY = "With the smallest --max-unavailable that is done by then: 8h, 2026-11-23T06:00Z"
_DOES_NOT_START = "apply does not start beside it: first it has to end, or be undone by `rollout abort`."


@takes("cluster", *RULES, "ssh")
def plan(
    settings: Given,
    file: Path | None = argument(None, "Show this saved plan; ask neither cluster nor hosts.", "FILE"),
    *,
    out: Path | None = option(None, "Save the plan, for apply FILE", "FILE"),
    markdown: Path | None = option(None, "Write the plan as Markdown, too", "FILE"),
    detailed_exitcode: bool = option(False, "Exit with 2 when nodes wait for a reboot, 4: unjudged"),
    explain: str | None = option(None, "Show why this node is in its wave, and its pods", "NODE"),
    finish_by: str | None = option(None, _FINISH_BY, "TIME"),
    snapshot: Path | None = option(None, "Save what the plan was made of, for rollout lab up --like FILE", "FILE"),
    anonymous: bool = option(False, "Hide names and labels in the snapshot"),
) -> None:
    """Show what apply would do, or what a saved plan is; touch nothing.

    Shown are the waves, what is out of the ordinary, and what stands in the way, which ends it with 6.
    With -o wide: every wave with every column, and who is left out and why.

    \b
    Examples:
      rollout plan --max-unavailable 3
      rollout plan -l pool=web --max-unavailable 25% \\
        --spread-by topology.kubernetes.io/zone --out web.plan
      rollout plan --finish-by 8h --window '22:00 6h'
    """
    from rollout.cli.files import check_target, write_whole
    from rollout.cli.stages.plan import cluster_copy, gathered
    from rollout.cli.stages.session import connect

    if file is not None:
        _show_saved(file, settings, flags=(out, markdown, detailed_exitcode, explain, finish_by, snapshot))
        return
    # rules that contradict each other are told before anything is asked
    policy = policy_of(settings)
    if finish_by:
        settings.refuse_typed(("waves.max-unavailable",), "is what --finish-by looks for", "Drop one of the two.")
    date = time_meant(finish_by, wiring.now(), "--finish-by")
    if anonymous and snapshot is None:
        raise UsageError("--anonymous is of a snapshot", hint="Add: --snapshot FILE")
    for target in (out, markdown, snapshot):
        check_target(target)
    session = connect(settings, policy)
    kept: Kept = {}
    inputs = gathered(session, kept if snapshot else None)
    if snapshot is not None:
        write_whole(snapshot, cluster_copy(inputs, kept, anonymous=anonymous))
        say(f"rehearse it: rollout lab up --like {shell_word(str(snapshot))}")
    if explain is not None:
        _show_explanation(explain, session, inputs)
        return
    raise typer.Exit(_plan(session, inputs, date, out=out, markdown=markdown, detailed=detailed_exitcode))


def _plan(
    session: "Session",
    inputs: "PlanInputs",
    date: datetime | None,
    *,
    out: Path | None,
    markdown: Path | None,
    detailed: bool,
) -> ExitCode:
    """Make a plan, by the smallest limit that is done by the date if there is one; show and write it."""
    from rollout.cli.files import write_whole
    from rollout.cli.stages import plan as stage
    from rollout.cli.stages.refusals import refused
    from rollout.cli.stages.run_status import rollout_beside
    from rollout.planning.plan.document import encode_plan
    from rollout.planning.plan.finish_by import smallest_limit
    from rollout.report.markdown import plan_markdown
    from rollout.report.plan_parts import blocked_line
    from rollout.report.plan_screen import plan_text

    limit, is_late = "", False
    if date is not None:
        with shown_meanwhile("looking for the smallest --max-unavailable"):
            finish = smallest_limit(inputs, date)
        say(stage.finish_text(finish, date))
        limit, is_late = f" --max-unavailable {finish.limit}", not finish.is_by(date)
        inputs = replace(inputs, policy=finish.plan.policy)
    planned = stage.decide(inputs)
    blockers, zones = refused(session, planned), stage.zones(inputs.snapshot)
    output, document = session.settings.output, encode_plan(planned)
    next_step = stage.next_without_waves(planned, session.settings)
    if planned.waves and not (blockers or is_late):
        next_step = _apply(out) if out else session.settings.repeated("rollout apply") + limit
    other, _ = rollout_beside(session, inputs.snapshot.nodes)
    beside = f"{other.sentence} {_DOES_NOT_START}" if other.is_first else ""
    if beside and output.as_json:
        say(f"{beside} See: {other.command}")
    width, now = output.width, wiring.now()
    text = partial(plan_text, planned, zones=zones, width=width, now=now, where=session.place, beside=beside)
    blocked, step = ("", other.command) if beside else (blocked_line(blockers), next_step)
    output.show(document, partial(text, blocked=blocked, next_step=step))
    if out is not None:
        write_whole(out, document)
    if markdown is not None:
        write_whole(markdown, plan_markdown(planned, zones=zones).encode())
    return ExitCode.BLOCKED if blockers or is_late else _ending(planned, detailed=detailed)


def _show_saved(file: Path, settings: Given, *, flags: tuple[object, ...]) -> None:
    """Show the plan as it was made; none of these flags may be given."""
    from rollout.cli.stages.plan import load_saved
    from rollout.planning.plan.document import encode_plan
    from rollout.report.plan_parts import blocked_line
    from rollout.report.plan_screen import plan_text

    if any(flags):
        raise UsageError("a saved plan is shown as it is", hint="Drop the flags.")
    settings.refuse_typed(PLANNED, "cannot be used with a saved plan, which is shown as it is", "Drop them.")
    plan = load_saved(file)
    blocked = blocked_line(plan.blockers)
    next_step = _apply(file) if plan.waves and not blocked else ""
    where = f"{plan.cluster.server}, made {plan.created_at}"
    width, now = settings.output.width, wiring.now()
    text = partial(plan_text, plan, zones={}, width=width, now=now, where=where, blocked=blocked, next_step=next_step)
    settings.output.show(encode_plan(plan), text)
    if blocked:
        raise typer.Exit(ExitCode.BLOCKED)


def _apply(file: Path) -> str:
    """As it is to be pasted."""
    return f"rollout apply {shell_word(str(file))}"


def _show_explanation(node: str, session: "Session", inputs: "PlanInputs") -> None:
    """Tell why a node is where it would be in a new plan."""
    from rollout.cli.stages.gather import close_names
    from rollout.planning.plan.build import assemble, decide
    from rollout.planning.plan.explanation import explain
    from rollout.report.plan_parts import explanation_text

    name = node_name(node)
    if name not in {known.name for known in inputs.snapshot.nodes}:
        raise UsageError(f"there is no node {name}", hint=close_names(name, inputs.snapshot.nodes))
    decisions = decide(inputs)
    explanation = explain(decisions, name)
    text = partial(explanation_text, explanation, assemble(decisions).estimate)
    session.settings.output.show(explanation, text, is_prose=True)


def _ending(planned: RolloutPlan, *, detailed: bool) -> ExitCode:
    """Return how it ends: with nothing waiting where any host answered; `detailed`: where every node was judged."""
    missing = excluded_by_trouble(planned.excluded)
    if not detailed:
        reasons = {exclusion.reason for exclusion in planned.excluded} - {ExclusionReason.EXCLUDED}
        return ExitCode.PARTIAL if not planned.waves and reasons == {ExclusionReason.UNREACHABLE} else ExitCode.OK
    if planned.waves or any(node.reason is ExclusionReason.DEFERRED for node in missing):
        return ExitCode.CHANGES
    return ExitCode.PARTIAL if missing else ExitCode.OK
