"""`rollout plan`."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.flags import CLUSTER, HOSTS, LISTING, RULES, takes
from rollout.cli.settings.reading import Given
from rollout.cli.settings.rules import PLANNED, policy_of, probe_of, selection_of
from rollout.cli.settings.schema import Allow, Output
from rollout.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from rollout.cli.stages.gather import Gathered
    from rollout.cli.stages.plan import Intent
    from rollout.model.plan import RolloutPlan

PAGES = (".html", ".htm")
FileArgument = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="Show this saved plan; ask neither cluster nor hosts.", show_default=False),
]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Save the plan, for apply FILE; as .html: a page")
]
MarkdownOption = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Write the plan as Markdown, too")
]
ExitCodeOption = Annotated[
    bool, typer.Option("--detailed-exitcode", help="Exit with 2 when nodes wait for a reboot, 4: unjudged")
]
ExplainOption = Annotated[
    str | None, typer.Option("--explain", metavar="NODE", help="Show why this node is in its wave, and its pods")
]


@takes(*CLUSTER, "nodes", *RULES, *HOSTS, formats=LISTING)
def plan(
    settings: Given,
    file: FileArgument = None,
    out: OutOption = None,
    markdown: MarkdownOption = None,
    detailed_exitcode: ExitCodeOption = False,
    explain: ExplainOption = None,
) -> None:
    """Show what apply would do, or what a saved plan is; touch nothing.

    Shown are the waves, what is out of the ordinary, and what stands in the way, which ends it with 6.
    With -o wide: every wave with every column, and who is left out and why.

    \b
    Examples:
      rollout plan --max-unavailable 3
      rollout plan -l pool=web --max-unavailable 25% \\
        --spread-by topology.kubernetes.io/zone --out web.plan
      rollout plan web.plan
    """
    from rollout.cli.files import check_target
    from rollout.cli.stages import gather, refusals
    from rollout.cli.stages.plan import Intent, decide
    from rollout.report.findings import blocked_line

    output = settings.output
    if file is not None:
        if out or markdown or detailed_exitcode or explain:
            raise UsageError("a saved plan is shown as it is", hint="Drop the flags.")
        settings.refuse_typed(PLANNED, "cannot be used with a saved plan, which is shown as it is", "Drop them.")
        _show_saved(file, output)
        return
    if explain is not None and output.as_names:
        raise UsageError("-o name is for the plan's nodes, not for --explain")
    # rules that contradict each other are told before anything is asked
    intent = Intent(selection_of(settings), policy_of(settings))
    check_target(out)
    check_target(markdown)
    gathered = gather.gather(settings, intent.selection, probe_of(settings, intent.policy.detect))
    if explain is not None:
        _show_explanation(explain, intent, gathered, output)
        return
    planned = decide(intent, gathered.snapshot, gathered.targets)
    beside = _beside(gathered, settings.lock.namespace)
    blockers = refusals.refused(planned, only_rivals=Allow.BLOCKED in settings.nodes.allow)
    next_step = "" if blockers or beside else _next(planned, settings, out)
    _show(planned, gathered, settings, (blocked_line(blockers), beside), next_step)
    if settings.nodes.require_all:
        refusals.refuse_excluded(planned)
    _write(planned, gathered, out, markdown)
    raise typer.Exit(ExitCode.BLOCKED if blockers else _ending(planned, detailed=detailed_exitcode))


def _show_saved(file: Path, output: Output) -> None:
    """The plan as it was made."""
    from rollout.cli import terminal, wiring
    from rollout.cli.stages.plan import load_plan
    from rollout.planning.plan.document import encode_plan
    from rollout.report.findings import blocked_line
    from rollout.report.plan_screen import plan_text

    plan = load_plan(file)
    blocked = blocked_line(plan.blockers)
    if output.is_document:
        terminal.show_bytes(output.document(encode_plan(plan)))
    elif output.as_names:
        terminal.show_names(node.name for node in plan.nodes)
    else:
        terminal.show(
            plan_text(
                plan,
                zones={},
                width=output.width,
                now=wiring.system_clock().now(),
                where=f"{plan.cluster.server}, made {plan.created_at}",
                blocked=blocked,
                next_step=_apply(file) if plan.waves and not blocked else "",
            )
        )
    if blocked:
        raise typer.Exit(ExitCode.BLOCKED)


def _beside(gathered: "Gathered", namespace: str) -> str:
    """The rollout for which `apply` would refuse this plan; empty where there is none, or this user may not see it."""
    from rollout.cli.stages.gather import find_unfinished_among
    from rollout.cli.stages.lock import glance_at_lock
    from rollout.errors import ApiError
    from rollout.execution.record.unfinished import word_of
    from rollout.report.unfinished import beside_text

    api = gathered.connections.api
    with suppress(ApiError):
        unfinished = find_unfinished_among(gathered.connections, gathered.snapshot.nodes, namespace)
        if unfinished is not None and unfinished.blocks:
            return beside_text(unfinished, word_of(unfinished, alive=glance_at_lock(api, namespace).alive))
    return ""


def _write(planned: "RolloutPlan", gathered: "Gathered", out: Path | None, markdown: Path | None) -> None:
    """The files that are asked for."""
    from rollout.cli.files import write_whole
    from rollout.cli.stages.plan import note_saved, zones
    from rollout.report.markdown import plan_markdown

    if out is not None:
        document = _document(out, planned, gathered)
        write_whole(out, document)
        note_saved(document)
    if markdown is not None:
        write_whole(markdown, plan_markdown(planned, zones=zones(gathered.snapshot)).encode())


def _document(out: Path, planned: "RolloutPlan", gathered: "Gathered") -> bytes:
    """The plan as the file's ending has it: a page, or what apply takes."""
    from rollout.cli import wiring
    from rollout.cli.stages.plan import zones
    from rollout.planning.plan.document import encode_plan

    if out.suffix.lower() not in PAGES:
        return encode_plan(planned)
    from rollout.report.runs.pages import plan_page

    return plan_page(planned, zones=zones(gathered.snapshot), now=wiring.system_clock().now()).encode()


def _next(planned: "RolloutPlan", settings: Given, out: Path | None) -> str:
    """The command that runs this plan, or one by the same rules; or that tells why there is none."""
    from rollout.model.progress import excluded_by_trouble

    if not planned.waves:
        return (
            settings.repeated("rollout doctor", *CLUSTER, *RULES, *HOSTS)
            if excluded_by_trouble(planned.excluded)
            else ""
        )
    if out is not None and out.suffix.lower() not in PAGES:
        return _apply(out)
    return settings.repeated("rollout apply", *CLUSTER, "nodes", *RULES, *HOSTS)


def _apply(file: Path) -> str:
    """As it is to be pasted."""
    from rollout.model.text import shell_word

    return f"rollout apply {shell_word(str(file))}"


def _show(
    planned: "RolloutPlan", gathered: "Gathered", settings: Given, hindrances: tuple[str, str], next_step: str
) -> None:
    """`hindrances` are that blockers keep apply from starting, and a rollout beside it that does."""
    from rollout.cli import wiring
    from rollout.cli.stages.plan import where, zones
    from rollout.cli.terminal import say, show, show_bytes, show_names
    from rollout.planning.plan.document import encode_plan
    from rollout.report.plan_screen import plan_text

    output, (blocked, beside) = settings.output, hindrances
    if beside and (output.is_document or output.as_names):
        say(beside)
    if output.is_document:
        show_bytes(output.document(encode_plan(planned)))
    elif output.as_names:
        show_names(node.name for node in planned.nodes)
    else:
        text = plan_text(
            planned,
            zones=zones(gathered.snapshot),
            width=output.width,
            now=wiring.system_clock().now(),
            where=where(planned, settings.cluster),
            blocked=blocked,
            beside=beside,
            next_step=next_step,
        )
        show(text)


def _show_explanation(node: str, intent: "Intent", gathered: "Gathered", output: Output) -> None:
    """Tell why a node is where it would be in a new plan."""
    from rollout.cli.settings.values import node_name
    from rollout.cli.stages.gather import close_names
    from rollout.cli.stages.plan import inputs_of
    from rollout.cli.terminal import show_bytes, show_lines
    from rollout.model.json_text import json_document
    from rollout.planning.plan.build import assemble, decide
    from rollout.planning.plan.explanation import explain
    from rollout.report.findings import explanation_text

    name = node_name(node)
    if name not in {known.name for known in gathered.snapshot.nodes}:
        raise UsageError(f"there is no node {name}", hint=close_names(name, gathered.snapshot.nodes))
    decisions = decide(inputs_of(intent, gathered.snapshot, gathered.targets))
    explanation = explain(decisions, name)
    if output.is_document:
        show_bytes(output.document(json_document(explanation)))
    else:
        show_lines(explanation_text(explanation, assemble(decisions).estimate))


def _ending(planned: "RolloutPlan", *, detailed: bool) -> ExitCode:
    """That nothing waits is said where any host has answered; `detailed`: where every node could be judged."""
    from rollout.model.plan import ExclusionReason
    from rollout.model.progress import excluded_by_trouble

    missing = excluded_by_trouble(planned.excluded)
    if not detailed:
        reasons = {exclusion.reason for exclusion in planned.excluded} - {ExclusionReason.EXCLUDED}
        return ExitCode.PARTIAL if not planned.waves and reasons == {ExclusionReason.UNREACHABLE} else ExitCode.OK
    if planned.waves or any(node.reason is ExclusionReason.DEFERRED for node in missing):
        return ExitCode.CHANGES
    return ExitCode.PARTIAL if missing else ExitCode.OK
