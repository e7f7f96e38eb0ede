"""A saved plan: read from its file, and compared with the cluster."""

from pathlib import Path

from rollout.adapters.input_files import read_input
from rollout.errors import PlanFileError, StalePlanError
from rollout.model.plan import RolloutPlan
from rollout.model.text import grouped, printable, shortened
from rollout.planning.plan.build import PlanInputs
from rollout.planning.plan.document import LARGEST_DOCUMENT, decode_plan
from rollout.planning.plan.staleness import changes

_MOST_CHANGES = 10


def load_saved(file: Path) -> RolloutPlan:
    """`PlanFileError` if the file cannot be read, or is not a plan exactly as it was saved."""
    try:
        content = read_input(file, most=LARGEST_DOCUMENT)
    except OSError as error:
        raise PlanFileError(
            f"cannot read the plan {file}: {error.strerror}",
            hint="Save one with: rollout plan --out FILE. Nodes are chosen with --node NAME.",
        ) from error
    return decode_plan(content, str(file))


def refuse_stale(saved: RolloutPlan, inputs: PlanInputs) -> None:
    """`StalePlanError` with a line for each kind of difference and the nodes that have it."""
    differences = grouped((change.what, change) for change in changes(saved, inputs))
    if not differences:
        return
    lines = list[str]()
    for what, group in differences.items():
        if len(group) == 1:
            lines.append(printable(str(group[0])))
        else:
            nodes = shortened([change.node for change in group])
            lines.append(f"{printable(what)}: {nodes}")
    if len(lines) > _MOST_CHANGES:
        others = len(lines) - _MOST_CHANGES
        lines = [*lines[:_MOST_CHANGES], f"and {others} other differences"]
    raise StalePlanError(
        f"the plan {saved.plan_id} no longer matches the cluster",
        details=lines,
        hint="Make a new one with `rollout plan --out FILE`, and review it.",
    )
