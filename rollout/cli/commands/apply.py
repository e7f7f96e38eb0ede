"""`rollout apply`."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rollout.cli import consent
from rollout.cli.flags import LINES, PLAN_OR_NODES, YES, option, takes
from rollout.cli.settings.reading import PLANNED, RULES, Given
from rollout.cli.settings.rules import refuse_another_process
from rollout.cli.settings.schema import MetricsSettings
from rollout.cli.settings.standing import overruled
from rollout.cli.terminal import say, show, warn
from rollout.errors import UsageError
from rollout.model.text import counted

if TYPE_CHECKING:
    from rollout.cli.stages.prepare import PreparedRun
    from rollout.cli.stages.request import Request

_DRY_RUN = "Change nothing: client or server, as in kubectl [server]"
# --allow still applies to a saved plan.
_OPEN = ("nodes.allow",)
_CONSENT = "Give --yes, or a plan saved with `rollout plan --out FILE`."


class DryRun(StrEnum):
    """The values of `--dry-run`, as in kubectl."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


@takes("cluster", *RULES, "gates.interactive", "ssh", formats=LINES, arguments=PLAN_OR_NODES)
def apply(
    settings: Given,
    *,
    file: Path | None = None,
    filename: Path | None = option(None, "Run this saved plan", "FILE", "--filename", "-f"),
    yes: bool = YES,
    dry_run: DryRun | None = option(None, _DRY_RUN, "MODE"),
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
    from rollout.cli import wiring
    from rollout.cli.stages import execute, observers, prepare, refusals, screens
    from rollout.cli.stages.cluster import connect, read_cluster
    from rollout.cli.stages.hosts import ask_hosts
    from rollout.execution.record.memory import require_memory

    file = _one_file(file, filename)
    is_rehearsal = dry_run in (DryRun.CLIENT, DryRun.SERVER)
    asks = not (yes or file is not None or is_rehearsal)
    as_json = settings.output.as_json
    if asks:
        consent.refuse_without_terminal(as_json=as_json, hint=_CONSENT)
    request = _request(settings, file)
    policy = request.policy
    gates = wiring.gates(settings, policy.gates.alerts)
    connections = connect(settings)
    api = connections.api
    place = wiring.cluster_place(settings, api)
    # A rehearsal is not a run: its metrics would replace those of the last run.
    metrics_settings = replace(settings, metrics=MetricsSettings()) if is_rehearsal else settings
    with (
        observers.metered(metrics_settings, api.server) as metrics,
        observers.measured_pass(metrics),
    ):
        watch = refusals.refuse_beside_living(api, request.namespace)
        refusals.refuse_without_rights(api, request.namespace, policy, unattended=False)
        snapshot = read_cluster(api, request.namespace, warns=False)
        require_memory(snapshot.memory)
        replaced = refusals.refuse_unfinished(
            api, request.namespace, snapshot.nodes, may_replace_stopped=asks or is_rehearsal
        )
        targets = ask_hosts(connections, request, snapshot.nodes)
        observers.observe_cluster(metrics, targets.observations, snapshot.memory)
        run = prepare.prepare(request, snapshot, targets)
        if as_json:
            warn(*screens.relaxed_notes(request))
        else:
            show(screens.run_text(run, snapshot, place))
        if replaced:
            warn(screens.replacement_text(replaced, asks=asks or is_rehearsal))
        refusals.refuse_blocked(run.plan, settings.nodes.allow)
        if is_rehearsal:
            asks_server = dry_run is DryRun.SERVER
            raise typer.Exit(execute.rehearse(run, api, asks_server=asks_server))
        # The plan that is shown has these notes; a saved one shows only its file.
        if as_json or file is not None:
            warn(*screens.held_notes(run.plan))
        if asks:
            _ask(run, place)
        execution = execute.Execution(
            run,
            connections,
            execute.stop_request(settings),
            gates,
            watch=watch,
            metrics=metrics,
        )
        raise typer.Exit(execute.execute(execution))


def _one_file(file: Path | None, filename: Path | None) -> Path | None:
    """Return the plan that is given as an argument or with --filename; `UsageError` for both."""
    if file and filename:
        raise UsageError(f"two plans: {file} and {filename}", hint="Give one of them.")
    return file or filename


def _request(settings: Given, file: Path | None) -> "Request":
    """Return a request by these settings, or by a saved plan.

    A saved plan has its own selection and rules: other flags are refused, and settings without
    effect are named.
    """
    from rollout.cli.stages.prepare import load_saved
    from rollout.cli.stages.request import Request, Saved, fresh_request

    request = fresh_request(settings)
    if file is None:
        return request
    saved = load_saved(file)
    refuse_another_process(settings, saved.policy)
    hint = "Drop them, or make a new plan with them."
    settings.refuse_typed(
        PLANNED, "cannot be used with a saved plan, which has its own rules", hint
    )
    for sentence in overruled(settings, saved.policy, saved.selection, open_settings=_OPEN):
        say(f"note: {sentence}")
    return Request(settings, saved.selection, saved.policy, Saved(saved, file))


def _ask(run: "PreparedRun", place: str) -> None:
    from rollout.cli.stages.screens import start_notes

    if run.plan.waves:
        question = f"Reboot {counted(run.plan.summary.nodes, 'node')} of {place}"
        consent.ask(question, start_notes(run.plan, run.request.policy))
    elif run.defers_own_node:
        consent.ask("Mark the node under this process for the next run")
