"""`rollout plan`."""

from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.options import pools
from rollout.cli.options.cluster import ClusterOptions, LeaseOptions
from rollout.cli.options.declaration import OWN, Flag
from rollout.cli.options.detect import DetectCommandOptions
from rollout.cli.options.gates import GateOptions, is_flag_given
from rollout.cli.options.general import ListingOptions
from rollout.cli.options.nodes import RequireAllOption, SelectionOptions
from rollout.cli.options.policy import PolicyOptions
from rollout.cli.options.reboot import RebootOptions
from rollout.cli.options.ssh import SshOptions
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
    Path | None, Flag(OWN, "Save the plan, for `rollout apply FILE`; FILE.html: as a page, for people.", "FILE")
]
MarkdownOption = Annotated[
    Path | None, Flag(OWN, "Write the plan as Markdown, too: for a merge request, or a job's summary.", "FILE")
]
ExitCodeOption = Annotated[
    bool,
    Flag(
        OWN, "Exit with 2 when nodes wait for a reboot; with 4 when none does, and some could not be reached or judged."
    ),
]
ExplainOption = Annotated[
    str | None,
    Flag(OWN, "Instead of the plan, show why this node is in its wave, and what happens to its pods.", "NODE"),
]


def plan(  # noqa: PLR0917 - typer's parameters; each is a group of options
    call: typer.Context,
    cluster: ClusterOptions,
    selection: SelectionOptions,
    policy: PolicyOptions,
    gates: GateOptions,
    ssh: SshOptions,
    reboot: RebootOptions,
    detect_command: DetectCommandOptions,
    lease: LeaseOptions,
    general: ListingOptions,
    file: FileArgument = None,
    out: OutOption = None,
    markdown: MarkdownOption = None,
    detailed_exitcode: ExitCodeOption = False,
    explain: ExplainOption = None,
    require_all: RequireAllOption = False,
) -> None:
    """Show what apply would do, or what a saved plan is; touch nothing.

    Shown are the waves and why they are as they are, who is left out and why, and what stands in the way.

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

    if file is not None:
        _show_saved(call, file, general)
        return
    if explain is not None and general.as_names:
        raise UsageError("-o name is for the plan's nodes, not for --explain")
    # rules that contradict each other are told before anything is asked
    rules = detect_command.added_to(reboot.added_to(gates.added_to(policy.with_pools(pools.given(call)))))
    intent, probe = Intent(selection.selection, rules), detect_command.probe(rules.detect)
    check_target(out)
    check_target(markdown)
    gathered = gather.gather(cluster, intent.selection, ssh, lease.lease_namespace, probe)
    if explain is not None:
        _show_explanation(explain, intent, gathered, general)
        return
    planned = decide(intent, gathered.snapshot, gathered.targets)
    _show(planned, gathered, general)
    if require_all:
        refusals.refuse_excluded(planned)
    _write(planned, gathered, out, markdown, _beside(gathered, lease.lease_namespace))
    if detailed_exitcode:
        raise typer.Exit(_detailed(planned))


def _show_saved(call: typer.Context, file: Path, general: ListingOptions) -> None:
    """The plan as it was made; `UsageError` for flags that would make another one."""
    from rollout.cli import terminal, wiring
    from rollout.cli.stages.plan import load_plan
    from rollout.planning.document import encode_plan
    from rollout.report.tables import blocked_text, plan_text, saved_note

    about_output = {"file", *(item.name for item in fields(ListingOptions))}
    if given := [name for name in call.params if name not in about_output and is_flag_given(call, name)]:
        flags = ", ".join("--" + name.replace("_", "-") for name in given)
        raise UsageError(f"{flags} cannot be used with a saved plan, which is shown as it is", hint="Drop the flags.")
    plan = load_plan(file)
    if general.is_document:
        terminal.show_bytes(general.document(encode_plan(plan)))
    elif general.as_names:
        terminal.show_names(node.name for node in plan.nodes)
    else:
        now = wiring.system_clock().now()
        text = plan_text(plan, zones={}, width=general.width, now=now, signs=terminal.is_terminal())
        terminal.show("\n".join((text, *blocked_text(plan))))
        if plan.waves and not plan.blockers:
            terminal.say(saved_note(str(file)))


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


def _write(planned: "RolloutPlan", gathered: "Gathered", out: Path | None, markdown: Path | None, beside: str) -> None:
    """The files that are asked for, and what may be done next; that is another rollout where one stands `beside` it."""
    from rollout.cli.files import write_whole
    from rollout.cli.stages.plan import note_saved, zones
    from rollout.cli.terminal import say
    from rollout.report.markdown import plan_markdown

    if out is not None:
        document = _document(out, planned, gathered)
        write_whole(out, document)
        note_saved(document)
    if markdown is not None:
        write_whole(markdown, plan_markdown(planned, zones=zones(gathered.snapshot)).encode())
    if planned.waves and (out or not (planned.blockers or beside)):
        say(_note(out, planned))
    if beside:
        say(beside)


def _document(out: Path, planned: "RolloutPlan", gathered: "Gathered") -> bytes:
    """The plan as the file's ending has it: a page, or what apply takes."""
    from rollout.cli import wiring
    from rollout.cli.stages.plan import zones
    from rollout.planning.document import encode_plan

    if out.suffix.lower() not in PAGES:
        return encode_plan(planned)
    from rollout.report.runs.pages import plan_page

    return plan_page(planned, zones=zones(gathered.snapshot), now=wiring.system_clock().now()).encode()


def _note(out: Path | None, planned: "RolloutPlan") -> str:
    from rollout.report.tables import UNSAVED_NOTE, page_note, saved_note

    if out is None:
        return UNSAVED_NOTE
    if out.suffix.lower() in PAGES:
        return page_note(str(out))
    return saved_note(str(out), blocked=bool(planned.blockers))


def _show(planned: "RolloutPlan", gathered: "Gathered", general: ListingOptions) -> None:
    from rollout.cli.stages.plan import shown
    from rollout.cli.terminal import show, show_bytes, show_names
    from rollout.planning.document import encode_plan
    from rollout.report.tables import blocked_text

    if general.is_document:
        show_bytes(general.document(encode_plan(planned)))
    elif general.as_names:
        show_names(node.name for node in planned.nodes)
    else:
        show("\n".join((shown(planned, gathered.snapshot, general.width), *blocked_text(planned))))


def _show_explanation(node: str, intent: "Intent", gathered: "Gathered", general: ListingOptions) -> None:
    """Tell why a node is where it would be in a new plan."""
    from rollout.cli.options.nodes import node_name
    from rollout.cli.stages.gather import close_names
    from rollout.cli.stages.plan import inputs_of
    from rollout.cli.terminal import show_bytes, show_lines
    from rollout.model.json_text import json_document
    from rollout.planning.explanation import explain
    from rollout.planning.plan import decide
    from rollout.report.findings import explanation_text

    name = node_name(node)
    if name not in {known.name for known in gathered.snapshot.nodes}:
        raise UsageError(f"there is no node {name}", hint=close_names(name, gathered.snapshot.nodes))
    explanation = explain(decide(inputs_of(intent, gathered.snapshot, gathered.targets)), name)
    if general.is_document:
        show_bytes(general.document(json_document(explanation)))
    else:
        show_lines(explanation_text(explanation))


def _detailed(planned: "RolloutPlan") -> ExitCode:
    """That nothing waits is said only where every node that was asked for could be judged."""
    from rollout.model.plan import ExclusionReason
    from rollout.model.progress import excluded_by_trouble

    missing = excluded_by_trouble(planned.excluded)
    if planned.waves or any(node.reason is ExclusionReason.DEFERRED for node in missing):
        return ExitCode.CHANGES
    return ExitCode.PARTIAL if missing else ExitCode.OK
