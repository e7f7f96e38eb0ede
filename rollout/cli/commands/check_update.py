"""`rollout check-update`."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli import wiring
from rollout.cli.flags import CLUSTER, HOSTS, SELECTION, takes
from rollout.cli.settings.reading import Given
from rollout.cli.settings.rules import selection_of
from rollout.cli.settings.values import some_time
from rollout.errors import ExitCode
from rollout.model.quantity import Duration

if TYPE_CHECKING:
    from rollout.cli.stages.gather import Targets
    from rollout.gather.updates.check import CheckResult, Limits
    from rollout.ports import HostExecutor
    from rollout.report.update_check import CheckReport


WaitOption = Annotated[
    bool, typer.Option("--wait", help="Follow each host until an update is staged, or none was found")
]
TimeoutOption = Annotated[
    Duration, typer.Option(parser=some_time, metavar="DURATION", help="With --wait: how long to wait in all")
]
StallOption = Annotated[
    Duration,
    typer.Option(parser=some_time, metavar="DURATION", help="With --wait: how long a host may make no progress"),
]


@takes(*CLUSTER, *SELECTION, *HOSTS)
def check_update(
    settings: Given,
    wait: WaitOption = False,
    timeout: TimeoutOption = Duration(1800),
    stall_timeout: StallOption = Duration(300),
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
    from rollout.gather.updates.check import Limits
    from rollout.report.update_check import CheckJsonLines, summary_text

    selection, as_json = selection_of(settings), settings.output.as_json
    connections = connect(settings, selection)
    targets = ask_hosts(read_nodes(connections), connections, selection, settings.ssh)
    with _report(as_json=as_json) as report:
        results = _results(targets, connections.shell, settings, report, Limits(timeout, stall_timeout), wait=wait)
        if isinstance(report, CheckJsonLines):
            report.summary(results)
    if not as_json:
        show_lines(summary_text(results))
    if not all(result.settled for result in results):
        raise typer.Exit(ExitCode.PARTIAL)


def _results(
    targets: "Targets",
    shell: "HostExecutor",
    settings: Given,
    report: "CheckReport",
    limits: "Limits",
    *,
    wait: bool,
) -> "list[CheckResult]":
    """First those that need no question, then the others as they come to an end."""
    from rollout.gather.updates.following import Patience, first_results, follow
    from rollout.planning.eligibility import excluded_by_name

    chosen = tuple(name for name in targets.selected if not excluded_by_name(name, selection_of(settings)))
    first, others = first_results(chosen, targets.observations, wait=wait)
    results = list(first)
    for result in first:
        report.ended(result)
    ssh, clock = settings.ssh, wiring.system_clock()
    patience = Patience(clock, clock.sleep, limits, ssh.probe_timeout, ssh.probe_concurrency)
    with shell.attending([facts.host for facts in others.values()]):
        for result in follow(others, shell, patience, report.changed, wait=wait):
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
