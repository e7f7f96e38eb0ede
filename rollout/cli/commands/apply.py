"""`rollout apply`."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.options import pools
from rollout.cli.options.cluster import ClusterOptions
from rollout.cli.options.declaration import OWN, Flag
from rollout.cli.options.gates import GateOptions, LocalGateOptions, is_flag_given, refuse_another_address
from rollout.cli.options.general import GeneralOptions
from rollout.cli.options.metrics import MetricsOptions
from rollout.cli.options.nodes import IgnoreOption, RequireAllOption, SelectionOptions
from rollout.cli.options.policy import PolicyOptions
from rollout.cli.options.run import ProcessOptions, YesOption
from rollout.errors import UsageError

if TYPE_CHECKING:
    from rollout.cli.stages.execute import Run
    from rollout.cli.stages.plan import Intent

FileArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE", help="A plan saved with `rollout plan --out FILE`, run exactly as saved.", show_default=False
    ),
]
DryRunOption = Annotated[
    bool, Flag(OWN, "Change nothing: show the plan, and what the API server would say to each cordon and eviction.")
]
# what a saved plan has decided already
_PLANNED = tuple(
    item.name
    for group in (SelectionOptions, PolicyOptions, GateOptions)
    for item in fields(group)
    # where the token may go is this process's word beside any plan
    if item.name != "prometheus_url"
)


def apply(  # noqa: PLR0917 - typer's parameters; each is a group of options
    call: typer.Context,
    cluster: ClusterOptions,
    selection: SelectionOptions,
    policy: PolicyOptions,
    gates: GateOptions,
    local: LocalGateOptions,
    process: ProcessOptions,
    general: GeneralOptions,
    file: FileArgument = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    ignore_blockers: IgnoreOption = False,
    require_all: RequireAllOption = False,
) -> None:
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

    consent.refuse_if_nobody_can_be_asked(given=yes or dry_run or file is not None, as_json=general.as_json)
    rules = process.reboot.added_to(gates.added_to(policy.with_pools(pools.given(call))))
    intent = plan.load_intent(file, selection.selection, rules if file else process.detect.added_to(rules))
    refuse_rules_beside_plan(call, intent, process, gates.prometheus_url)
    ports = wiring.gates_of(process, intent.policy.gates.alerts, local, gates.prometheus_url)
    connections = gather.connect(cluster, intent.selection, process.ssh)
    api, name, namespace = connections.api, process.naming.cluster_name, process.lease.lease_namespace
    measured = MetricsOptions() if dry_run else process.metrics
    with metrics.metered(measured, name, api.server) as meter, meter.measured_pass(api, namespace):
        watch = refuse_beside_living(api, namespace, process.lock)
        gathered = plan.gathered_by(connections, intent, process)
        meter.observe(gathered.targets.observations, gathered.snapshot.memory)
        settings = execute.RunSettings(process, ports, general.as_json, general.width, meter.observers, watch=watch)
        run = plan.planned_run(intent, gathered, settings, quiet=general.as_json)
        if require_all:
            refusals.refuse_excluded(run.plan, from_file=file is not None)
        refusals.refuse_blocked(run.plan, only_rivals=ignore_blockers)
        if dry_run:
            raise typer.Exit(execute.rehearse(run))
        plan.warn_of_held(run.plan)
        if not (yes or file):
            _ask(run, cluster)
        raise typer.Exit(execute.execute(run))


def _ask(run: "Run", cluster: ClusterOptions) -> None:
    """Whether what was shown may be done; nothing where that is nothing."""
    from rollout.cli import consent, wiring
    from rollout.cli.stages import plan
    from rollout.model.text import counted

    if run.plan.waves:
        where = consent.place(run.plan.cluster.server, wiring.context_of(cluster))
        despite = plan.despite_hold(run.plan)
        consent.ask(f"Reboot {counted(run.plan.summary.nodes, 'node')} of {where}{despite}")
    elif run.deferred:
        consent.ask("Mark the node under this process for the next run")


def refuse_rules_beside_plan(call: typer.Context, intent: "Intent", process: ProcessOptions, own_url: str) -> None:
    """`UsageError` for a rule given on the command line beside a saved plan, which has its rules in it."""
    if intent.saved is None:
        return
    process.reboot.refuse_another(intent.policy)
    process.detect.refuse_another(intent.policy)
    rules = [name for name in _PLANNED if is_flag_given(call, name)]
    if rules:
        flags = ", ".join("--" + name.replace("_", "-") for name in rules)
        raise UsageError(
            f"{flags} cannot be used with a saved plan, which has its own rules",
            hint="Drop the flags, or make a new plan with them.",
        )
    refuse_another_address(call, own_url, intent.policy)
