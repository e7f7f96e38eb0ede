"""`rollout apply`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rollout.cli import consent, wiring
from rollout.cli.flags import YES, argument, option, takes
from rollout.cli.settings.reading import PLANNED, RULES, Given
from rollout.cli.settings.rules import policy_of, refuse_another_address, refuse_missing_commands, selection_of
from rollout.cli.settings.schema import Metrics
from rollout.model.policy import Policy
from rollout.model.text import counted

if TYPE_CHECKING:
    from rollout.cli.stages.session import Run


_CONSENT = "Give --yes, or a plan saved with `rollout plan --out FILE`."


@takes("cluster", *RULES, "gates.interactive", "ssh")
def apply(
    settings: Given,
    file: Path | None = argument(None, "A plan saved with `rollout plan --out FILE`, run exactly as saved.", "FILE"),
    yes: bool = YES,
    dry_run: bool = option(False, "Change nothing; ask the server about each write"),
) -> None:
    """Run a saved plan; or plan, show, ask and run.

    A node at a time, or as many as the rules allow: cordon, evict, reboot, prove the reboot, uncordon.

    \b
    Examples:
      rollout apply --max-unavailable 3
      rollout apply web.plan
      rollout apply --yes -o json > run.jsonl
    """
    from rollout.cli.stages import execute, metrics, plan, refusals
    from rollout.cli.stages.session import connect

    consent.refuse_if_nobody_can_be_asked(
        given=yes or dry_run or file is not None, as_json=settings.output.as_json, hint=_CONSENT
    )
    selection, policy = selection_of(settings), policy_of(settings)
    saved = plan.load_saved(file) if file else None
    if saved:
        selection, policy = saved.selection, saved.policy
        _refuse_rules_beside_plan(settings, policy)
    gates = wiring.gates(settings, policy.gates.alerts)
    session = replace(connect(settings, selection, policy), saved=saved, saved_in=str(file or ""), gates=gates)
    measured = Metrics() if dry_run else settings.metrics
    metering = metrics.metered(measured, settings.cluster.name, session.api.server)
    with metering as meter, meter.measured_pass():
        watch = refusals.refuse_beside_living(session.api, session.namespace)
        session = replace(session, watch=watch, meter=meter)
        run = plan.planned_run(session)
        refusals.refuse_unfit(session, run.plan)
        if dry_run:
            raise typer.Exit(execute.rehearse(run))
        if saved or session.as_json:
            # elsewhere the plan that is shown has them
            plan.warn_of_held(run.plan)
        if not (yes or saved):
            _ask(run)
        raise typer.Exit(execute.execute(run))


def _ask(run: "Run") -> None:
    """Whether what was shown may be done; nothing where that is nothing."""
    if run.plan.waves:
        nodes = counted(run.plan.summary.nodes, "node")
        consent.ask(f"Reboot {nodes} of {run.session.place}")
    elif run.deferred:
        consent.ask("Mark the node under this process for the next run")


def _refuse_rules_beside_plan(settings: Given, policy: Policy) -> None:
    """`UsageError` for a rule typed beside a saved plan, which has its rules in it."""
    refuse_missing_commands(settings, policy)
    refuse_another_address(settings, policy)
    settings.refuse_typed(
        PLANNED, "cannot be used with a saved plan, which has its own rules", "Drop them, or make a new plan with them."
    )
