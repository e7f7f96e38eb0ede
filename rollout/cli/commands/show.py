"""`rollout show`."""

from pathlib import Path
from typing import Annotated

import typer

from rollout.cli.options.general import ListingOptions

PlanArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A plan saved with `rollout plan --out FILE`.", show_default=False)
]


def show(file: PlanArgument, general: ListingOptions) -> None:
    """Show a saved plan as it was made; ask neither cluster nor hosts.

    \b
    Examples:
      rollout show web.plan
      rollout show web.plan -o json
    """
    from rollout.cli import terminal, wiring
    from rollout.cli.stages.plan import load_plan
    from rollout.planning.document import encode_plan
    from rollout.report.tables import blocked_text, plan_text, saved_note

    plan = load_plan(file)
    if general.is_document:
        terminal.show_bytes(general.document(encode_plan(plan)))
        return
    if general.as_names:
        terminal.show_names(node.name for node in plan.nodes)
        return
    now = wiring.system_clock().now()
    text = plan_text(plan, zones={}, width=general.width, now=now, signs=terminal.is_terminal())
    terminal.show("\n".join((text, *blocked_text(plan))))
    if plan.waves and not plan.blockers:
        terminal.say(saved_note(str(file)))
