"""`rollout apply`."""

from dataclasses import replace
from pathlib import Path

import typer

from rollout.cli import consent
from rollout.cli.flags import YES, argument, option, takes
from rollout.cli.settings.reading import PLANNED, RULES, Given
from rollout.cli.settings.rules import policy_of, refuse_another_process
from rollout.cli.settings.schema import Metrics
from rollout.model.text import counted

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
    from rollout.cli import wiring
    from rollout.cli.stages import execute, observers, plan, refusals
    from rollout.cli.stages.gather import connect

    consent.refuse_if_nobody_can_be_asked(
        given=yes or dry_run or file is not None, as_json=settings.output.as_json, hint=_CONSENT
    )
    policy = policy_of(settings)
    if saved := plan.load_saved(file) if file else None:
        policy = saved.policy
        refuse_another_process(settings, policy)
        hint = "Drop them, or make a new plan with them."
        settings.refuse_typed(PLANNED, "cannot be used with a saved plan, which has its own rules", hint)
    gates = wiring.gates(settings, policy.gates.alerts)
    session = connect(settings, policy)
    selection = saved.selection if saved else session.selection
    metering = observers.metered(replace(settings, metrics=Metrics()) if dry_run else settings, session.api.server)
    with metering as metrics, observers.measured_pass(metrics):
        session = replace(refusals.refuse_beside_living(session), gates=gates, metrics=metrics)
        session = replace(session, saved=saved, saved_in=str(file or ""), selection=selection)
        run = plan.planned_run(session)
        refusals.refuse_unfit(session, run.plan)
        if dry_run:
            raise typer.Exit(execute.rehearse(run))
        if saved or session.as_json:
            # elsewhere the plan that is shown has them
            plan.warn_of_held(run.plan)
        if not (yes or saved):
            if run.plan.waves:
                consent.ask(f"Reboot {counted(run.plan.summary.nodes, 'node')} of {session.place}")
            elif run.deferred:
                consent.ask("Mark the node under this process for the next run")
        raise typer.Exit(execute.execute(run))
