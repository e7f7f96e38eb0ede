"""`rollout check-update`."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli import wiring
from rollout.cli.options import values
from rollout.cli.options.cluster import ClusterOptions
from rollout.cli.options.declaration import PATIENCE, Flag
from rollout.cli.options.general import GeneralOptions
from rollout.cli.options.nodes import SelectionOptions
from rollout.cli.options.ssh import SshOptions
from rollout.errors import ExitCode
from rollout.model.quantity import Duration

if TYPE_CHECKING:
    from rollout.cli.stages.gather import Targets
    from rollout.gather.updates.check import CheckResult, Limits
    from rollout.ports import HostExecutor
    from rollout.report.update_check import CheckReport


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """Whether to follow the hosts, and for how long."""

    wait: Annotated[
        bool,
        Flag(
            PATIENCE,
            "Follow each host until an update is staged, or none was found.",
            variable="ROLLOUT_CHECK_UPDATE_WAIT",
        ),
    ] = False
    timeout: Annotated[
        Duration, Flag(PATIENCE, "With --wait: how long to wait in all.", "DURATION", read=values.some_time)
    ] = Duration(1800)
    stall_timeout: Annotated[
        Duration,
        Flag(PATIENCE, "With --wait: how long a host may make no progress.", "DURATION", read=values.some_time),
    ] = Duration(300)

    @property
    def limits(self) -> "Limits":
        """The same, as the following takes them."""
        from rollout.gather.updates.check import Limits

        return Limits(self.timeout, self.stall_timeout)


def check_update(
    cluster: ClusterOptions,
    selection: SelectionOptions,
    ssh: SshOptions,
    check: CheckOptions,
    general: GeneralOptions,
) -> None:
    """Ask the selected hosts to look for an update now.

    Hosts that have one staged are not asked; hosts that are at it already are followed as they are. Ends with 4 where
    a host could not be asked, failed, or did not get to an end in time.

    \b
    Examples:
      rollout check-update -l pool=web
      rollout check-update --wait && rollout plan
    """
    from rollout.cli.stages.gather import ask_hosts, connect, read_nodes
    from rollout.cli.terminal import show_lines
    from rollout.report.update_check import CheckJsonLines, summary_text

    connections = connect(cluster, selection.selection, ssh)
    targets = ask_hosts(read_nodes(connections), connections, selection.selection, ssh)
    with _report(as_json=general.as_json) as report:
        results = _results(targets, connections.shell, selection, ssh, check, report)
        if isinstance(report, CheckJsonLines):
            report.summary(results)
    if not general.as_json:
        show_lines(summary_text(results))
    if not all(result.settled for result in results):
        raise typer.Exit(ExitCode.PARTIAL)


def _results(
    targets: "Targets",
    shell: "HostExecutor",
    selection: SelectionOptions,
    ssh: SshOptions,
    check: CheckOptions,
    report: "CheckReport",
) -> "list[CheckResult]":
    """First those that need no question, then the others as they come to an end."""
    from rollout.cli.open_files import asked_at_once
    from rollout.gather.updates.following import Patience, first_results, follow
    from rollout.planning.eligibility import excluded_by_name

    chosen = tuple(name for name in targets.selected if not excluded_by_name(name, selection.selection))
    first, others = first_results(chosen, targets.observations, wait=check.wait)
    results = list(first)
    for result in first:
        report.ended(result)
    at_once = asked_at_once(ssh.probe_concurrency, len(others))
    clock = wiring.system_clock()
    patience = Patience(clock, clock.sleep, check.limits, ssh.probe_timeout, at_once)
    with shell.attending([facts.host for facts in others.values()]):
        for result in follow(others, shell, patience, report.changed, wait=check.wait):
            report.ended(result)
            results.append(result)
    return results


def _report(*, as_json: bool) -> "CheckReport":
    from rollout.cli.terminal import error_console
    from rollout.report.update_check import CheckBars, CheckJsonLines, CheckLines

    if as_json:
        return CheckJsonLines(sys.stdout, wiring.system_clock())
    console = error_console()
    if console.is_terminal and not console.is_dumb_terminal:
        return CheckBars(console)
    return CheckLines(sys.stderr, wiring.system_clock())
