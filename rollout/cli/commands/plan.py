"""`rollout plan`."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import typer

from rollout.adapters.local_files import check_target, output_file, write_whole
from rollout.cli.flags import NODES, PLAN_OR_NODES, option, takes
from rollout.cli.settings.reading import RULES, Given
from rollout.cli.settings.values import future_time, node_name
from rollout.cli.suggestions import node_names
from rollout.cli.terminal import say
from rollout.errors import ExitCode, UsageError
from rollout.model.text import shell_word

_EXPLAIN = "Explain the wave of this node, and show its pods"
_SNAPSHOT = "Save the input of the plan, for rollout lab up --like"
_FINISH_BY = "Choose the smallest --max-unavailable that finishes by TIME: 8h, 2026-11-23T06:00Z"


@takes("cluster", *RULES, "ssh", formats=NODES, arguments=PLAN_OR_NODES)
def plan(
    settings: Given,
    *,
    file: Path | None = None,
    out: Path | None = option(
        None, "Save the plan, for rollout apply FILE", "FILE", parser=output_file
    ),
    markdown: Path | None = option(
        None, "Also write the plan as Markdown", "FILE", parser=output_file
    ),
    detailed_exitcode: bool = option(
        False, "Exit 2 if nodes are pending, 4 if some were not checked"
    ),
    explain: str | None = option(None, _EXPLAIN, "NODE", autocompletion=node_names),
    finish_by: str | None = option(None, _FINISH_BY, "TIME"),
    snapshot: Path | None = option(None, _SNAPSHOT, "FILE", parser=output_file),
    anonymous: bool = option(False, "Hide names and labels in the snapshot"),
) -> None:
    """Show what apply would do, or show a saved plan. Changes nothing.

    Shows the waves, warnings and blockers (exit code 6). -o wide shows more.

    \b
    Examples:
      rollout plan --max-unavailable 3
      rollout plan -l pool=web --max-unavailable 25% --out web.plan
      rollout plan --finish-by 8h --window '22:00 6h'
    """
    from rollout.cli.stages import preview
    from rollout.cli.stages.cluster import connect, read_cluster
    from rollout.cli.stages.hosts import ask_hosts
    from rollout.cli.stages.prepare import decide, inputs_of
    from rollout.cli.stages.refusals import refusing_blockers
    from rollout.cli.stages.request import fresh_request
    from rollout.execution.record.memory import require_memory

    if file is not None:
        if any((out, markdown, detailed_exitcode, explain, finish_by, snapshot)):
            raise UsageError("a saved plan is shown as it is", hint="Drop the flags.")
        preview.show_saved(file, settings)
        return
    # Errors in flags come before the first request.
    request = fresh_request(settings)
    date = _finish_date(finish_by, settings)
    if anonymous and snapshot is None:
        raise UsageError("--anonymous requires --snapshot", hint="Add: --snapshot FILE")
    for target in (out, markdown, snapshot):
        check_target(target)
    connections = connect(settings)
    answers: dict[str, dict[str, bytes]] | None = None if snapshot is None else {}
    cluster = read_cluster(connections.api, request.namespace, answers)
    # A user who only plans needs no right to read the memory.
    if not cluster.memory.denied:
        require_memory(cluster.memory)
    inputs = inputs_of(request, cluster, ask_hosts(connections, request, cluster.nodes))
    if snapshot is not None and answers is not None:
        write_whole(snapshot, preview.cluster_copy(inputs, answers, anonymous=anonymous))
        say(f"rehearse it: rollout lab up --like {shell_word(str(snapshot))}")
    if explain is not None:
        preview.show_explanation(node_name(explain), request, inputs)
        return
    finish = preview.find_limit(inputs, date) if date else None
    if finish:
        inputs = replace(inputs, policy=finish.plan.policy)
    made = decide(inputs)
    blockers = refusing_blockers(made, settings.nodes.allow)
    is_late = bool(finish and date and not finish.is_by(date))
    is_runnable = made.waves and not (blockers or is_late)
    preview.show_preview(
        connections.api,
        request,
        cluster,
        made,
        blockers=blockers,
        run_command=preview.apply_command(settings, out, finish) if is_runnable else "",
    )
    preview.write(made, cluster, out=out, markdown=markdown)
    if blockers or is_late:
        raise typer.Exit(ExitCode.BLOCKED)
    raise typer.Exit(preview.exit_code(made, detailed=detailed_exitcode))


def _finish_date(finish_by: str | None, settings: Given) -> datetime | None:
    from rollout.cli import wiring

    if finish_by:
        settings.refuse_typed(
            ("waves.max-unavailable",), "is what --finish-by looks for", "Drop one of the two."
        )
    return future_time(finish_by, wiring.now(), "--finish-by")
