from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rollout.cli import consent
from rollout.cli.flags import LINES, PLAN_OR_NODES, YES, takes
from rollout.cli.options import argument, option
from rollout.cli.settings.existing_plan import settings_without_effect
from rollout.cli.settings.reading import PLANNED, RULES, CommandSettings
from rollout.cli.settings.rules import require_settings_for
from rollout.cli.settings.schema import MetricsSettings
from rollout.cli.settings.values import os_version
from rollout.cli.suggestions import proven_versions
from rollout.cli.terminal import say, show, warn
from rollout.errors import ExitCode, UsageError
from rollout.model.text import counted

if TYPE_CHECKING:
    from rollout.cli.stages.metrics import MeasuredCode
    from rollout.cli.stages.prepare import FreshRun, PreparedRun
    from rollout.cli.stages.request import Request
    from rollout.ports import ClusterApi
    from rollout.report.metrics import Metrics

_FILENAME = option(None, "Run this saved plan", "FILE", "--filename", "-f")
_DRY_RUN = option(
    None, "Must be none, server or client; --dry-run alone means server [none]", "MODE"
)
_ROLLED_BACK = argument(
    ...,
    "Version to roll back from, as rollout status shows it.",
    "VERSION",
    proven_versions,
    parser=os_version,
)
# A saved plan does not decide these.
_CHANGEABLE = ("nodes.allow",)
_CONSENT = "Give --yes, or a plan saved with `rollout plan --out FILE`."


class DryRun(StrEnum):
    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


# `takes` adds the flags and arguments, and passes `settings` and `file`.
@takes("cluster", *RULES, "gates.interactive", "ssh", formats=LINES, arguments=PLAN_OR_NODES)
def apply(
    settings: CommandSettings,
    file: Path | None = None,
    filename: Path | None = _FILENAME,
    yes: bool = YES,
    dry_run: DryRun | None = _DRY_RUN,
) -> None:
    """Run a saved plan, or create one, ask for confirmation, and run it.

    Cordons, drains, reboots, verifies and uncordons each node, one at a time by default.

    \b
    Examples:
      rollout apply --max-unavailable 3
      rollout apply -f web.plan
      rollout apply --dry-run=server
      rollout apply --yes -o json > run.jsonl
    """
    file = _only_file(file, filename)
    asks = not (yes or file is not None or _is_rehearsal(dry_run))
    if asks:
        consent.refuse_without_terminal(as_json=settings.output.as_json, hint=_CONSENT)
    request = _make_request(settings, file)
    raise typer.Exit(_prepare_and_run(request, asks=asks, dry_run=dry_run))


@takes("cluster", *RULES, "gates.interactive", "ssh", formats=LINES)
def rollback(
    settings: CommandSettings,
    version: str = _ROLLED_BACK,
    yes: bool = YES,
    dry_run: DryRun | None = _DRY_RUN,
) -> None:
    """Roll the nodes that run a version back to their previous one, and hold the version.

    Cordons, drains, reboots, verifies and uncordons each node, as apply does. Leaves out nodes that
    have no earlier version to boot. No rollout boots nodes into the version again until you
    release it.

    \b
    Examples:
      rollout rollback 4081.2.1 --max-unavailable 3
      rollout rollback 4081.2.1 --node worker-2 --dry-run=server
    """
    from rollout.cli.stages.request import fresh_request

    asks = not (yes or _is_rehearsal(dry_run))
    if asks:
        consent.refuse_without_terminal(as_json=settings.output.as_json, hint=_CONSENT)
    request = fresh_request(settings, rollback=version)
    raise typer.Exit(_prepare_and_run(request, asks=asks, dry_run=dry_run))


def _is_rehearsal(dry_run: DryRun | None) -> bool:
    return dry_run in (DryRun.CLIENT, DryRun.SERVER)


def _prepare_and_run(request: "Request", *, asks: bool, dry_run: DryRun | None) -> ExitCode:
    from rollout.cli import gate_wiring, wiring
    from rollout.cli.stages.cluster import connect
    from rollout.cli.stages.lock import refuse_if_locked

    settings = request.settings
    is_rehearsal = _is_rehearsal(dry_run)
    gate_ports = gate_wiring.gate_ports(settings, request.policy.gates.alerts)
    connections = connect(settings)
    api = connections.api
    with _measured(settings, api.server, is_rehearsal=is_rehearsal) as (metrics, measured):
        # This only checks the lock. `Rollout.run` takes it, after the plan was made.
        watch = refuse_if_locked(api, request.namespace)
        # Stages are imported as they begin: the first request does not wait for the others.
        from rollout.cli.stages import execute, refusals
        from rollout.cli.stages.prepare import prepare_fresh

        # The operator must see that a stopped rollout is replaced.
        may_decline = asks or is_rehearsal
        fresh = prepare_fresh(connections, request, metrics, may_replace_stopped=may_decline)
        prepared = fresh.prepared
        _show_plan(fresh, api, may_decline=may_decline)
        refusals.refuse_blocked(prepared.plan, settings.nodes.allow)
        if is_rehearsal:
            return execute.rehearse(prepared, api, asks_server=dry_run is DryRun.SERVER)
        if asks:
            _confirm(prepared, wiring.cluster_place(settings, api))
        stop = execute.stop_request(settings)
        execution = execute.Execution(
            prepared, connections, stop, gate_ports, watch=watch, metrics=metrics
        )
        result = execute.run_and_show(execution)
        measured.code = execute.run_exit_code(execution, result)
        return measured.code


@contextmanager
def _measured(
    settings: CommandSettings, server: str, *, is_rehearsal: bool
) -> "Iterator[tuple[Metrics | None, MeasuredCode]]":
    from rollout.cli.stages.metrics import deliver_metrics, measured_pass

    if is_rehearsal:
        # A rehearsal must not replace the metrics of the last run.
        settings = replace(settings, metrics=MetricsSettings())
    with deliver_metrics(settings, server) as metrics, measured_pass(metrics) as measured:
        yield metrics, measured


def _show_plan(fresh: "FreshRun", api: "ClusterApi", *, may_decline: bool) -> None:
    from rollout.cli import wiring
    from rollout.cli.stages import screens
    from rollout.cli.stages.request import Saved

    request = fresh.prepared.request
    as_json = request.settings.output.as_json
    if as_json:
        warn(*screens.relaxed_notes(request))
    else:
        place = wiring.cluster_place(request.settings, api)
        show(screens.run_text(fresh.prepared, fresh.snapshot, place))
    # The screen of a fresh plan has these notes.
    if as_json or isinstance(request.origin, Saved):
        warn(*screens.held_notes(fresh.prepared.plan))
    if fresh.replaced:
        warn(screens.replacement_text(fresh.replaced, asks=may_decline))


def _only_file(file: Path | None, filename: Path | None) -> Path | None:
    """Return the saved plan; raise `UsageError` if both are given."""
    if file and filename:
        raise UsageError(f"two plans: {file} and {filename}", hint="Give one of them.")
    return file or filename


def _make_request(settings: CommandSettings, file: Path | None) -> "Request":
    """A saved plan has its own rules: flags are refused, and ignored settings are printed."""
    from rollout.cli.stages.request import Request, Saved, fresh_request

    request = fresh_request(settings)
    if file is None:
        return request
    from rollout.cli.stages.prepare import load_saved

    saved = load_saved(file)
    require_settings_for(settings, saved.policy)
    hint = "Drop them, or make a new plan with them."
    settings.refuse_typed(
        PLANNED, why="cannot be used with a saved plan, which has its own rules", hint=hint
    )
    for sentence in settings_without_effect(
        settings, saved.policy, saved.selection, changeable=_CHANGEABLE
    ):
        say(f"note: {sentence}")
    return Request(settings, saved.selection, saved.policy, Saved(saved, file))


def _confirm(prepared: "PreparedRun", place: str) -> None:
    from rollout.cli.stages.screens import start_notes

    if prepared.plan.waves:
        verb = "Roll back" if prepared.plan.policy.rollback else "Reboot"
        question = f"{verb} {counted(prepared.plan.summary.nodes, 'node')} of {place}"
        consent.ask(question, start_notes(prepared.plan, prepared.request.policy))
    elif prepared.defers_own_node:
        consent.ask("Mark the node that runs this process for the next run")
