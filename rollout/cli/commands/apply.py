"""`docs/architecture.md`, "How apply runs", lists the code of each stage in order."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rollout.cli import consent
from rollout.cli.flags import LINES, PLAN_OR_NODES, YES, takes
from rollout.cli.options import argument, option
from rollout.cli.settings.reading import PLANNED, RULES, CommandSettings
from rollout.cli.settings.rules import require_settings_for
from rollout.cli.settings.values import parse_os_version
from rollout.cli.suggestions import proven_versions
from rollout.cli.terminal import say, show, warn
from rollout.errors import ExitCode, UsageError
from rollout.model.text import counted

if TYPE_CHECKING:
    from rollout.cli.stages.cluster import Connections
    from rollout.cli.stages.prepare import FreshRun, PreparedRun
    from rollout.cli.stages.rollout_spec import RolloutSpec
    from rollout.ports import ClusterApi
    from rollout.report.metrics import Metrics

_FILENAME = option(None, "Run this saved plan", "FILE", "--filename", "-f")
_DRY_RUN = option(
    None,
    "Must be none, client (only show the plan) or server (also send dry-run requests to the API"
    " server); if no value is given, server is used [none]",
    "MODE",
)
_ROLLED_BACK = argument(
    ...,
    "Version to roll back from, as rollout status shows it.",
    "VERSION",
    proven_versions,
    parser=parse_os_version,
)
# They also apply to the run of a saved plan.
_CHANGEABLE = ("nodes.allow",)
_CONSENT = "Use --yes, or a plan saved with `rollout plan --out FILE`."


class DryRun(StrEnum):
    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


@takes("cluster", *RULES, "gates.interactive", "ssh", formats=LINES, arguments=PLAN_OR_NODES)
def apply(
    settings: CommandSettings,
    file: Path | None = None,
    filename: Path | None = _FILENAME,
    yes: bool = YES,
    dry_run: DryRun | None = _DRY_RUN,
) -> None:
    """Run a saved plan. Without one, create a plan, ask for confirmation, and run it.

    Cordons, drains and reboots each node, verifies the reboot, and uncordons the node. Reboots one
    node at a time by default.

    \b
    Examples:
      rollout apply --max-unavailable 3
      rollout apply -f web.plan
      rollout apply --dry-run=server
      rollout apply --yes -o json > run.jsonl
    """
    file = _only_file(file, filename)
    # A saved plan was reviewed when it was made.
    is_confirmed = yes or file is not None
    asks = not is_confirmed and not _is_rehearsal(dry_run)
    if asks:
        consent.refuse_without_terminal(as_json=settings.output.as_json, hint=_CONSENT)
    spec = _make_spec(settings, file)
    raise typer.Exit(_run_or_rehearse(spec, asks=asks, dry_run=dry_run))


@takes("cluster", *RULES, "gates.interactive", "ssh", formats=LINES)
def rollback(
    settings: CommandSettings,
    version: str = _ROLLED_BACK,
    yes: bool = YES,
    dry_run: DryRun | None = _DRY_RUN,
) -> None:
    """Roll the nodes that run VERSION back to their previous version, and hold VERSION.

    Cordons, drains and reboots each node, verifies the reboot, and uncordons the node, as apply
    does. Leaves out nodes that
    have no earlier version to boot. No rollout boots nodes into the version again until you
    end the hold (`rollout release`), unless you use --allow held.

    \b
    Examples:
      rollout rollback 4081.2.1 --max-unavailable 3
      rollout rollback 4081.2.1 --node worker-2 --dry-run=server
    """
    from rollout.cli.stages.rollout_spec import new_rollout_spec

    asks = not yes and not _is_rehearsal(dry_run)
    if asks:
        consent.refuse_without_terminal(as_json=settings.output.as_json, hint=_CONSENT)
    spec = new_rollout_spec(settings, rollback=version)
    raise typer.Exit(_run_or_rehearse(spec, asks=asks, dry_run=dry_run))


def _is_rehearsal(dry_run: DryRun | None) -> bool:
    return dry_run in (DryRun.CLIENT, DryRun.SERVER)


def _run_or_rehearse(spec: "RolloutSpec", *, asks: bool, dry_run: DryRun | None) -> ExitCode:
    if _is_rehearsal(dry_run):
        return _rehearse(spec, asks_api_server=dry_run is DryRun.SERVER)
    return _run(spec, asks=asks)


def _rehearse(spec: "RolloutSpec", *, asks_api_server: bool) -> ExitCode:
    """Leave the metrics of the last run unchanged."""
    from rollout.cli import gate_wiring
    from rollout.cli.stages.cluster import connect
    from rollout.cli.stages.lock import refuse_if_locked

    # Called only for its errors.
    gate_wiring.gate_ports(spec.settings, spec.policy.gates.alerts)
    connections = connect(spec.settings)
    refuse_if_locked(connections.api, spec.namespace)
    from rollout.cli.stages import execute

    prepared = _prepare_and_show(connections, spec, metrics=None, asks=True)
    return execute.rehearse(prepared, connections.api, asks_api_server=asks_api_server)


def _run(spec: "RolloutSpec", *, asks: bool) -> ExitCode:
    from rollout.cli import gate_wiring, wiring
    from rollout.cli.stages.cluster import connect
    from rollout.cli.stages.lock import refuse_if_locked
    from rollout.cli.stages.metrics import deliver_metrics, measure_attempt

    settings = spec.settings
    gate_ports = gate_wiring.gate_ports(settings, spec.policy.gates.alerts)
    connections = connect(settings)
    api = connections.api
    with deliver_metrics(settings, api.server) as metrics, measure_attempt(metrics) as measured:
        # Fail early: `Rollout.run` takes the lock later.
        watch = refuse_if_locked(api, spec.namespace)
        # Imported late to send the first request sooner.
        from rollout.cli.stages import execute

        prepared = _prepare_and_show(connections, spec, metrics=metrics, asks=asks)
        if asks:
            _confirm(prepared, wiring.cluster_place(settings, api))
        stop = execute.new_graceful_stop(settings)
        ready_run = execute.ReadyRun(
            prepared, connections, stop, gate_ports, watch=watch, metrics=metrics
        )
        result = execute.run_and_show(ready_run)
        measured.code = execute.run_exit_code(ready_run, result)
        return measured.code


def _prepare_and_show(
    connections: "Connections", spec: "RolloutSpec", *, metrics: "Metrics | None", asks: bool
) -> "PreparedRun":
    """Only a command that `asks` may replace a rollout that somebody stopped."""
    from rollout.cli.stages import refusals
    from rollout.cli.stages.prepare import prepare_fresh

    fresh = prepare_fresh(connections, spec, metrics, may_replace_stopped=asks)
    _show_plan(fresh, connections.api, asks=asks)
    refusals.refuse_blocked(fresh.prepared.plan, spec.settings.nodes.allow)
    return fresh.prepared


def _show_plan(fresh: "FreshRun", api: "ClusterApi", *, asks: bool) -> None:
    from rollout.cli import wiring
    from rollout.cli.stages import screens
    from rollout.cli.stages.rollout_spec import Saved

    spec = fresh.prepared.spec
    as_json = spec.settings.output.as_json
    if as_json:
        warn(*screens.relaxed_notes(spec))
    else:
        place = wiring.cluster_place(spec.settings, api)
        show(screens.new_run_text(fresh.prepared, fresh.snapshot, place))
    shows_whole_plan = not as_json and not isinstance(spec.origin, Saved)
    if not shows_whole_plan:
        warn(*screens.held_notes(fresh.prepared.plan))
    if fresh.replaced:
        warn(screens.replacement_text(fresh.replaced, asks=asks))


def _only_file(file: Path | None, filename: Path | None) -> Path | None:
    if file and filename:
        raise UsageError(f"two plans: {file} and {filename}", hint="Specify only one of them.")
    return file or filename


def _make_spec(settings: CommandSettings, file: Path | None) -> "RolloutSpec":
    from rollout.cli.stages.rollout_spec import RolloutSpec, Saved, new_rollout_spec

    spec = new_rollout_spec(settings)
    if file is None:
        return spec
    from rollout.cli.settings.existing_plan import settings_without_effect
    from rollout.cli.stages.prepare import load_saved

    saved = load_saved(file)
    require_settings_for(settings, saved.policy)
    settings.refuse_typed_settings(
        PLANNED,
        why="cannot be used with a saved plan, which has its own settings",
        hint="Drop them, or make a new plan with them.",
    )
    without_effect = settings_without_effect(
        settings, saved.policy, saved.selection, changeable=_CHANGEABLE
    )
    for sentence in without_effect:
        say(f"note: {sentence}")
    return RolloutSpec(settings, saved.selection, saved.policy, Saved(saved, file))


def _confirm(prepared: "PreparedRun", place: str) -> None:
    from rollout.cli.stages.screens import start_notes

    if prepared.plan.waves:
        verb = "Roll back" if prepared.plan.policy.rollback else "Reboot"
        question = f"{verb} {counted(prepared.plan.summary.nodes, 'node')} in {place}"
        consent.ask(question, start_notes(prepared.plan, prepared.spec.policy))
    elif prepared.defers_own_node:
        # Nothing reboots, but the node is tainted.
        consent.ask("Mark the node that runs this process for the next run")
