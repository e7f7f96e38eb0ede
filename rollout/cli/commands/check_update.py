"""`rollout check-update`."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli import wiring
from rollout.cli.flags import CLUSTER, HOSTS, SELECTION, takes
from rollout.cli.settings.reading import Given
from rollout.cli.settings.rules import selection_of
from rollout.cli.settings.values import some_time
from rollout.cli.terminal import error_console
from rollout.errors import ExitCode
from rollout.model.plan import FORMAT_VERSION
from rollout.model.quantity import Duration
from rollout.model.text import counted, printable, shortened

if TYPE_CHECKING:
    from rollout.cli.stages.session import Session, Targets
    from rollout.gather.updates import CheckResult

_MOST_NAMES = 5


WaitOption = Annotated[
    bool, typer.Option("--wait", help="Follow each host until an update is staged, or none was found")
]
TimeoutOption = Annotated[
    Duration, typer.Option(parser=some_time, metavar="DURATION", help="With --wait: how long to wait in all")
]


@takes(*CLUSTER, *SELECTION, *HOSTS)
def check_update(settings: Given, wait: WaitOption = False, timeout: TimeoutOption = Duration(1800)) -> None:
    """Ask the selected hosts to look for an update now.

    Hosts that have one staged are not asked; hosts that are at it already are followed as they are. Ends with 4 where
    a host could not be asked, failed, or did not get to an end in time.

    \b
    Examples:
      rollout check-update -l pool=web
      rollout check-update --wait && rollout plan
    """
    from rollout.cli.stages.gather import ask_hosts, read_nodes
    from rollout.cli.stages.session import connect

    session = connect(settings, selection_of(settings))
    results = _results(session, ask_hosts(session, read_nodes(session)), timeout, wait=wait)
    settings.output.show(_document(results), lambda: _text(results), is_prose=True)
    if not all(result.settled for result in results):
        raise typer.Exit(ExitCode.PARTIAL)


def _results(session: "Session", targets: "Targets", timeout: Duration, *, wait: bool) -> "list[CheckResult]":
    """Return the ends of all hosts, in the order of their names; on a terminal a bar meanwhile."""
    from rollout.gather.updates import Patience, check_hosts
    from rollout.planning.eligibility.candidates import excluded_by_name
    from rollout.report.console import asking_progress

    chosen = tuple(name for name in targets.selected if not excluded_by_name(name, session.selection))
    ssh = session.settings.ssh
    patience = Patience(wiring.system_clock(), timeout, ssh.probe_timeout, ssh.probe_concurrency)
    results: dict[str, CheckResult] = {}
    with asking_progress(error_console(), len(chosen), "following hosts" if wait else "asking hosts") as advance:
        for result in check_hosts(chosen, targets.observations, session.shell, patience, wait=wait):
            advance(result.node, result)
            results[result.node] = result
    return [results[name] for name in chosen]


def _document(results: "list[CheckResult]") -> bytes:
    from rollout.model.json_text import json_line
    from rollout.report.document_types import CheckReport

    return json_line(CheckReport(format_version=FORMAT_VERSION, hosts=results))


def _text(results: "list[CheckResult]") -> str:
    """Return the whole in a sentence, and a line for the hosts of which the same is to be said."""
    from rollout.gather.updates import CheckOutcome

    alike: dict[tuple[str, str, str], list[str]] = {}
    for result in sorted(results, key=lambda result: list(CheckOutcome).index(result.outcome)):
        alike.setdefault((result.outcome, result.version, result.message), []).append(result.node)
    numbers = Counter(result.outcome for result in results)
    figures = ", ".join(f"{numbers[outcome]} {outcome}" for outcome in CheckOutcome if numbers[outcome])
    lines = [
        ": ".join(filter(None, (f"  {outcome}", printable(version), shortened(names, _MOST_NAMES), printable(message))))
        for (outcome, version, message), names in alike.items()
    ]
    return "\n".join((f"{counted(len(results), 'host')}: {figures or 'nothing to do'}.", *lines))
