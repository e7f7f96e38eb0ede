"""`rollout check-update`."""

from collections import Counter

import typer

from rollout.cli.flags import takes
from rollout.cli.settings.reading import SELECTION, Given
from rollout.cli.stages.gather import ask_hosts, read_nodes
from rollout.cli.stages.session import connect
from rollout.cli.terminal import error_console
from rollout.errors import ExitCode
from rollout.gather.updates import CheckOutcome, CheckResult, check_hosts
from rollout.model.plan import FORMAT_VERSION
from rollout.model.text import counted, printable, shortened
from rollout.report.document_types import CheckReport
from rollout.report.sentences import grouped

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
    from rollout.report.console import asking_progress

    session = connect(settings)
    targets, concurrency = ask_hosts(session, read_nodes(session.api)), settings.ssh.probe_concurrency
    by_name: dict[str, CheckResult] = {}
    with asking_progress(error_console(), len(targets.meant)) as advance:
        for result in check_hosts(targets.meant, targets.observations, session.shell, concurrency=concurrency):
            advance()
            by_name[result.node] = result
    results = [by_name[name] for name in targets.meant]
    document = CheckReport(format_version=FORMAT_VERSION, hosts=results)
    settings.output.show(document, lambda: _text(results), is_prose=True)
    if not all(result.settled for result in results):
        raise typer.Exit(ExitCode.PARTIAL)


def _text(results: list[CheckResult]) -> str:
    """Return the whole in a sentence, and a line for the hosts of which the same is to be said."""
    ranked = sorted(results, key=lambda result: list(CheckOutcome).index(result.outcome))
    alike = grouped(((result.outcome, result.version, result.message), result.node) for result in ranked)
    numbers = Counter(result.outcome for result in results)
    figures = ", ".join(f"{numbers[outcome]} {outcome}" for outcome in CheckOutcome if numbers[outcome])
    lines = [
        ": ".join(filter(None, (f"  {outcome}", printable(version), shortened(names, _MOST_NAMES), printable(message))))
        for (outcome, version, message), names in alike.items()
    ]
    return "\n".join((f"{counted(len(results), 'host')}: {figures or 'nothing to do'}.", *lines))
