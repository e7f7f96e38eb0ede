"""`rollout check-update`."""

from collections import Counter

import typer

from rollout.cli.flags import takes
from rollout.cli.settings.reading import SELECTION, Given
from rollout.cli.stages.gather import ask_hosts, read_nodes
from rollout.cli.stages.session import Session, Targets, connect
from rollout.cli.terminal import error_console
from rollout.errors import ExitCode
from rollout.gather.updates import CheckOutcome, CheckResult, check_hosts
from rollout.model.plan import FORMAT_VERSION
from rollout.model.text import counted, printable, shortened
from rollout.report.document_types import CheckReport

_MOST_NAMES = 5


@takes("cluster", *SELECTION, "ssh")
def check_update(settings: Given) -> None:
    """Ask the selected hosts to look for an update now.

    Hosts that have one staged, or are at it already, are not asked. What they find is downloaded by themselves:
    `rollout status --watch` shows it. Ends with 4 where a host could not be asked.

    \b
    Examples:
      rollout check-update -l pool=web
      rollout check-update --node worker-1
    """
    session = connect(settings)
    results = _results(session, ask_hosts(session, read_nodes(session)))
    document = CheckReport(format_version=FORMAT_VERSION, hosts=results)
    settings.output.show(document, lambda: _text(results), is_prose=True)
    if not all(result.settled for result in results):
        raise typer.Exit(ExitCode.PARTIAL)


def _results(session: Session, targets: Targets) -> list[CheckResult]:
    """Return what became of all hosts, in the order of their names; on a terminal a bar meanwhile."""
    from rollout.report.console import asking_progress

    concurrency = session.settings.ssh.probe_concurrency
    results: dict[str, CheckResult] = {}
    with asking_progress(error_console(), len(targets.meant)) as advance:
        for result in check_hosts(targets.meant, targets.observations, session.shell, concurrency=concurrency):
            advance(result.node, result)
            results[result.node] = result
    return [results[name] for name in targets.meant]


def _text(results: list[CheckResult]) -> str:
    """Return the whole in a sentence, and a line for the hosts of which the same is to be said."""
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
