"""`rollout apply`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.flags import CLUSTER, HOSTS, RULES, takes
from rollout.cli.options.shared import YesOption
from rollout.cli.settings.reading import Given
from rollout.cli.settings.rules import PLANNED, refuse_another_address, refuse_missing_commands
from rollout.cli.settings.schema import Allow, Metrics

if TYPE_CHECKING:
    from rollout.cli.stages.execute import Run
    from rollout.model.policy import Policy

FileArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE", help="A plan saved with `rollout plan --out FILE`, run exactly as saved.", show_default=False
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Change nothing; ask the server about each write")]


@takes(*CLUSTER, "nodes", *RULES, "gates.interactive", *HOSTS)
def apply(settings: Given, file: FileArgument = None, yes: YesOption = False, dry_run: DryRunOption = False) -> None:
    """Run a saved plan; or plan, show, ask and run.

    A node at a time, or as many as the rules allow: cordon, evict, reboot, prove the reboot, uncordon.

    \b
    Examples:
      rollout apply --max-unavailable 3
      rollout apply web.plan
      rollout apply --yes -o json > run.jsonl
    """
    from rollout.cli import consent, wiring
    from rollout.cli.stages import execute, gather, metrics, plan, refusals
    from rollout.cli.stages.lock import refuse_beside_living

    as_json, namespace = settings.output.as_json, settings.lock.namespace
    consent.refuse_if_nobody_can_be_asked(given=yes or dry_run or file is not None, as_json=as_json)
    intent = plan.load_intent(file, settings)
    if file is not None:
        _refuse_rules_beside_plan(settings, intent.policy)
    gates = wiring.gates(settings, intent.policy.gates.alerts)
    connections = gather.connect(settings, intent.selection)
    measured = Metrics() if dry_run else settings.metrics
    metering = metrics.metered(measured, settings.cluster.name, connections.api.server)
    with metering as meter, meter.measured_pass(connections.api, namespace):
        watch = refuse_beside_living(connections.api, namespace)
        gathered = plan.gathered_by(connections, intent, settings)
        meter.observe(gathered.targets.observations, gathered.snapshot.memory)
        conditions = execute.RunSettings(settings, gates, meter.observers, watch=watch)
        run = plan.planned_run(intent, gathered, conditions, quiet=as_json)
        if settings.nodes.require_all:
            refusals.refuse_excluded(run.plan, from_file=file is not None)
        refusals.refuse_blocked(run.plan, only_rivals=Allow.BLOCKED in settings.nodes.allow)
        if dry_run:
            raise typer.Exit(execute.rehearse(run))
        plan.warn_of_held(run.plan)
        if not (yes or file):
            _ask(run, settings)
        raise typer.Exit(execute.execute(run))


def _ask(run: "Run", settings: Given) -> None:
    """Whether what was shown may be done; nothing where that is nothing."""
    from rollout.cli import consent, wiring
    from rollout.cli.stages import plan
    from rollout.model.text import counted

    if run.plan.waves:
        where = consent.place(run.plan.cluster.server, wiring.context_of(settings.cluster))
        despite = plan.despite_hold(run.plan)
        consent.ask(f"Reboot {counted(run.plan.summary.nodes, 'node')} of {where}{despite}")
    elif run.deferred:
        consent.ask("Mark the node under this process for the next run")


def _refuse_rules_beside_plan(settings: Given, policy: "Policy") -> None:
    """`UsageError` for a rule typed beside a saved plan, which has its rules in it."""
    refuse_missing_commands(settings, policy)
    refuse_another_address(settings, policy)
    settings.refuse_typed(
        PLANNED,
        "cannot be used with a saved plan, which has its own rules",
        "Drop them, or make a new plan with them.",
    )
