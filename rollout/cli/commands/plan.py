"""`rollout plan`."""

from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from rollout.adapters.local_files import check_target, output_file, write_whole
from rollout.cli.flags import NODES, PLAN_OR_NODES, option, takes
from rollout.cli.settings.reading import RULES, Given
from rollout.cli.settings.rules import policy_of
from rollout.cli.settings.values import node_name, time_meant
from rollout.cli.suggestions import node_names
from rollout.cli.terminal import say
from rollout.errors import UsageError
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
    from rollout.cli.stages import plan as stage
    from rollout.cli.stages.gather import connect

    if file is not None:
        stage.show_saved(
            file, settings, flags=(out, markdown, detailed_exitcode, explain, finish_by, snapshot)
        )
        return
    # Errors in flags come before the first request.
    policy = policy_of(settings)
    date = _finish_date(finish_by, settings)
    if anonymous and snapshot is None:
        raise UsageError("--anonymous is of a snapshot", hint="Add: --snapshot FILE")
    for target in (out, markdown, snapshot):
        check_target(target)
    session = connect(settings, policy)
    kept: Any = {}
    inputs = stage.gathered(session, kept if snapshot else None)
    if snapshot is not None:
        write_whole(snapshot, stage.cluster_copy(inputs, kept, anonymous=anonymous))
        say(f"rehearse it: rollout lab up --like {shell_word(str(snapshot))}")
    if explain is not None:
        stage.show_explanation(node_name(explain), session, inputs)
        return
    raise typer.Exit(
        stage.preview(session, inputs, date, out=out, markdown=markdown, detailed=detailed_exitcode)
    )


def _finish_date(finish_by: str | None, settings: Given) -> datetime | None:
    from rollout.cli import wiring

    if finish_by:
        settings.refuse_typed(
            ("waves.max-unavailable",), "is what --finish-by looks for", "Drop one of the two."
        )
    return time_meant(finish_by, wiring.now(), "--finish-by")
