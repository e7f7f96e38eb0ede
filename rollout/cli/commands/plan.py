from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from msgspec import Struct

from rollout.adapters.local_files import check_output_file, output_file
from rollout.cli.flags import NODES, PLAN_OR_NODES, takes
from rollout.cli.options import option
from rollout.cli.settings.reading import RULES, CommandSettings
from rollout.cli.settings.values import parse_future_time, parse_node_name, parse_os_version
from rollout.cli.suggestions import node_names
from rollout.errors import UsageError

if TYPE_CHECKING:
    from rollout.cli.stages.cluster import Connections
    from rollout.cli.stages.rollout_spec import RolloutSpec
    from rollout.gather.cluster.snapshot import CachedObjects
    from rollout.planning.plan.build import PlanInputs

_OUT = option(None, "Save the plan, for rollout apply FILE", "FILE", parser=output_file)
_MARKDOWN = option(None, "Also write the plan as Markdown", "FILE", parser=output_file)
_DETAILED_EXITCODE = option(
    False, "Exit with 2 if nodes would reboot, else with 4 if pending nodes cannot"
)
_EXPLAIN = option(
    None,
    "Explain why this node is in its wave, and show its pods",
    "NODE",
    autocompletion=node_names,
)
_FINISH_BY = option(
    None,
    "Choose the smallest --max-unavailable that is expected to finish by TIME: 8h (from now) or"
    " 2030-01-07T06:00Z",
    "TIME",
)
_SNAPSHOT = option(
    None, "Save the plan's input, for rollout lab up --like", "FILE", parser=output_file
)
_ROLLBACK = option(
    None, "Plan the rollback of the nodes that run this version", "VERSION", parser=parse_os_version
)
_ANONYMOUS = option(False, "Hide names and labels in the snapshot")
_NOT_WITH_EXPLAIN = frozenset({"--out", "--markdown", "--detailed-exitcode", "--finish-by"})


class _NewPlanFlags(Struct, frozen=True, kw_only=True):
    out: Path | None
    markdown: Path | None
    detailed_exitcode: bool
    finish_by: str | None
    explain: str | None
    snapshot: Path | None
    anonymous: bool
    rollback: str | None

    @property
    def given(self) -> Sequence[str]:
        names = [name for name in self.__struct_fields__ if getattr(self, name)]
        return [f"--{name.replace('_', '-')}" for name in names]


@takes("cluster", *RULES, "ssh", formats=NODES, arguments=PLAN_OR_NODES)
def plan(
    settings: CommandSettings,
    *,
    file: Path | None = None,
    out: Path | None = _OUT,
    markdown: Path | None = _MARKDOWN,
    detailed_exitcode: bool = _DETAILED_EXITCODE,
    explain: str | None = _EXPLAIN,
    finish_by: str | None = _FINISH_BY,
    snapshot: Path | None = _SNAPSHOT,
    anonymous: bool = _ANONYMOUS,
    rollback: str | None = _ROLLBACK,
) -> None:
    """Show what apply would do, or show a saved plan. Changes nothing.

    Shows the waves, warnings and blockers. Exits with 6 if there are blockers.

    \b
    Examples:
      rollout plan -l pool=web --max-unavailable 25% --out web.plan
      rollout plan --finish-by 8h --window '22:00 6h'
    """
    flags = _NewPlanFlags(
        out=out,
        markdown=markdown,
        detailed_exitcode=detailed_exitcode,
        finish_by=finish_by,
        explain=explain,
        snapshot=snapshot,
        anonymous=anonymous,
        rollback=rollback,
    )
    if file is None:
        _show_new(settings, flags)
    else:
        _show_saved(file, settings, flags.given)


def _show_new(settings: CommandSettings, flags: _NewPlanFlags) -> None:
    from rollout.cli.stages.cluster import connect
    from rollout.cli.stages.rollout_spec import new_rollout_spec

    flags_about_plan = [flag for flag in flags.given if flag in _NOT_WITH_EXPLAIN]
    if flags.explain is not None and flags_about_plan:
        other_flags = ", ".join(flags_about_plan)
        raise UsageError(
            f"--explain cannot be combined with {other_flags}", hint=f"Drop {other_flags}."
        )
    spec = new_rollout_spec(settings, rollback=flags.rollback or "")
    finish_date = _finish_date(flags.finish_by, settings)
    _check_outputs(flags)
    connections = connect(settings)
    inputs = _read_inputs(connections, spec, flags)
    # Imported late to send the first request sooner.
    from rollout.cli.stages import preview

    if flags.explain is not None:
        preview.show_explanation(parse_node_name(flags.explain), spec, inputs)
        return
    new_preview = preview.make_preview(inputs, finish_date, settings.nodes.allow)
    preview.show_preview(
        connections.api, spec, inputs.snapshot, preview=new_preview, saved_to=flags.out
    )
    preview.write_plan(new_preview.plan, inputs.snapshot, out=flags.out, markdown=flags.markdown)
    raise typer.Exit(preview.plan_exit_code(new_preview, detailed=flags.detailed_exitcode))


def _show_saved(file: Path, settings: CommandSettings, flags: Sequence[str]) -> None:
    from rollout.cli.stages.preview import NOT_WITH_SAVED, show_saved

    if flags:
        raise UsageError(f"{', '.join(flags)} {NOT_WITH_SAVED}", hint="Drop them.")
    show_saved(file, settings)


def _read_inputs(
    connections: "Connections", spec: "RolloutSpec", flags: _NewPlanFlags
) -> "PlanInputs":
    from rollout.cli.stages.cluster import read_cluster

    answers: CachedObjects | None = None if flags.snapshot is None else {}
    with_jobs = spec.policy.drain.completion.is_used
    cluster = read_cluster(connections.api, spec.namespace, answers, with_jobs=with_jobs)
    from rollout.cli.stages import preview

    inputs = preview.complete_inputs(connections, spec, cluster)
    if flags.snapshot is not None and answers is not None:
        preview.write_copy(flags.snapshot, inputs, answers, anonymous=flags.anonymous)
    return inputs


def _check_outputs(flags: _NewPlanFlags) -> None:
    if flags.anonymous and flags.snapshot is None:
        raise UsageError("--anonymous requires --snapshot", hint="Add: --snapshot FILE")
    for target in (flags.out, flags.markdown, flags.snapshot):
        check_output_file(target)


def _finish_date(finish_by: str | None, settings: CommandSettings) -> datetime | None:
    from rollout.cli import wiring

    if finish_by is None:
        return None
    settings.refuse_typed_settings(
        ("waves.max-unavailable",),
        why="cannot be combined with --finish-by, which chooses it",
        hint="Drop one of the two.",
    )
    return parse_future_time(finish_by, wiring.now(), "--finish-by")
