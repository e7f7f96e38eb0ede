"""`rollout apply`."""

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.options.cluster import ClusterOptions, LeaseOptions, LockOptions
from rollout.cli.options.declaration import OWN, Flag
from rollout.cli.options.gates import GateOptions, LocalGateOptions, is_flag_given, refuse_another_address
from rollout.cli.options.general import GeneralOptions
from rollout.cli.options.nodes import IgnoreOption, RequireAllOption, SelectionOptions
from rollout.cli.options.policy import PolicyOptions
from rollout.cli.options.reboot import RebootOptions
from rollout.cli.options.run import JournalOptions, StopOptions, YesOption
from rollout.cli.options.ssh import PlaybookOptions, SshOptions
from rollout.errors import UsageError

if TYPE_CHECKING:
    from rollout.cli.deciding import Intent

FileArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]", help="A plan saved with `rollout plan --out FILE`: exactly this is run.", show_default=False
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
    ssh: SshOptions,
    playbooks: PlaybookOptions,
    reboot: RebootOptions,
    lease: LeaseOptions,
    lock: LockOptions,
    stop: StopOptions,
    journal: JournalOptions,
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
    from rollout.cli.deciding import load_intent
    from rollout.cli.preparing import prepared
    from rollout.cli.requiring import MEND_FOR_FILE, MEND_FOR_PLAN, refuse_incomplete
    from rollout.cli.running import refuse_blocked, rehearse, run
    from rollout.model.progress import excluded_by_trouble

    consent.refuse_if_nobody_can_be_asked(given=yes or dry_run or file is not None, as_json=general.as_json)
    intent = load_intent(file, selection.selection, reboot.added_to(gates.added_to(policy.policy)))
    refuse_rules_beside_plan(call, intent, reboot, gates.prometheus_url)
    wiring.gates(intent.policy.gates.alerts, local, gates.prometheus_url)
    around = wiring.node_playbooks(playbooks, ssh)
    this = prepared(intent, cluster, ssh, lease, lock, quiet=general.as_json)
    if require_all:
        refuse_incomplete(excluded_by_trouble(this.plan.excluded), MEND_FOR_FILE if file else MEND_FOR_PLAN)
    refuse_blocked(this.plan, only_rivals=ignore_blockers)
    if dry_run:
        raise typer.Exit(rehearse(this, as_json=general.as_json))
    if this.plan.waves and not (yes or file):
        consent.ask()
    options = replace(this.options, reboot_command=reboot.command)
    this = replace(this, options=options, stop=stop.stop, journal=journal.journal, local=local, playbooks=around)
    this = replace(this, prometheus_url=gates.prometheus_url)
    raise typer.Exit(run(this, as_json=general.as_json))


def refuse_rules_beside_plan(call: typer.Context, intent: "Intent", reboot: RebootOptions, own_url: str) -> None:
    """`UsageError` for a rule given on the command line beside a saved plan, which has its rules in it."""
    if intent.saved is None:
        return
    reboot.refuse_another(intent.policy)
    given = [name for name in _PLANNED if is_flag_given(call, name)]
    if given:
        flags = ", ".join("--" + name.replace("_", "-") for name in given)
        raise UsageError(
            f"{flags} beside a saved plan: it is run by the rules that are saved in it",
            hint="Leave the flags away, or make a new plan with them.",
        )
    refuse_another_address(call, own_url, intent.policy)
