"""`rollout apply`."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rollout.cli import consent
from rollout.cli.flags import LINES, PLAN_OR_NODES, YES, option, takes
from rollout.cli.settings.reading import PLANNED, RULES, Given
from rollout.cli.settings.rules import policy_of, refuse_another_process
from rollout.cli.settings.schema import MetricsSettings
from rollout.cli.settings.standing import overruled
from rollout.cli.terminal import say
from rollout.errors import UsageError
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy
from rollout.model.text import counted

if TYPE_CHECKING:
    from rollout.cli.stages.gather import Run

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
    from rollout.cli.stages import execute, observers, plan, refusals
    from rollout.cli.stages.gather import connect

    file = _one_file(file, filename)
    is_rehearsal = dry_run in (DryRun.CLIENT, DryRun.SERVER)
    is_agreed = yes or file is not None
    as_json = settings.output.as_json
    consent.refuse_if_nobody_can_be_asked(
        given=is_agreed or is_rehearsal, as_json=as_json, hint=_CONSENT
    )
    policy = policy_of(settings)
    saved = plan.load_saved(file) if file else None
    if saved:
        policy = _fixed_policy(saved, settings)
    gates = wiring.gates(settings, policy.gates.alerts)
    session = connect(settings, policy)
    selection = saved.selection if saved else session.selection
    metered = replace(settings, metrics=MetricsSettings()) if is_rehearsal else settings
    metering = observers.metered(metered, session.api.server)
    with metering as metrics, observers.measured_pass(metrics):
        session = replace(refusals.refuse_beside_living(session), gates=gates, metrics=metrics)
        session = replace(session, saved=saved, saved_in=str(file or ""), selection=selection)
        run = plan.planned_run(session, asks=is_rehearsal or not is_agreed)
        refusals.refuse_unfit(session, run.plan)
        if is_rehearsal:
            raise typer.Exit(execute.rehearse(run, asks_server=dry_run is DryRun.SERVER))
        if saved or session.as_json:
            # Otherwise the plan that is shown has them.
            plan.warn_of_held(run.plan)
        if not is_agreed:
            _ask(run)
        raise typer.Exit(execute.execute(run))


def _one_file(file: Path | None, filename: Path | None) -> Path | None:
    if file and filename:
        raise UsageError(f"two plans: {file} and {filename}", hint="Give one of them.")
    return file or filename


def _fixed_policy(saved: RolloutPlan, settings: Given) -> Policy:
    """Return the rules of a saved plan; refuse flags that differ, and name settings without effect."""
    policy = saved.policy
    refuse_another_process(settings, policy)
    hint = "Drop them, or make a new plan with them."
    settings.refuse_typed(
        PLANNED, "cannot be used with a saved plan, which has its own rules", hint
    )
    for sentence in overruled(settings, policy, saved.selection, open_settings=_OPEN):
        say(f"note: {sentence}")
    return policy


def _ask(run: "Run") -> None:
    from rollout.cli.stages.plan import about_to_happen

    if run.plan.waves:
        question = f"Reboot {counted(run.plan.summary.nodes, 'node')} of {run.session.place}"
        consent.ask(question, about_to_happen(run))
    elif run.deferred:
        consent.ask("Mark the node under this process for the next run")
