"""`rollout doctor`."""

from typing import Annotated

import typer

from rollout.cli.flags import CLUSTER, HOSTS, RULES, takes
from rollout.cli.settings.reading import Given
from rollout.cli.settings.rules import policy_of
from rollout.errors import ExitCode

NotifyTestOption = Annotated[bool, typer.Option("--notify-test", help="Send a test of notifications")]


@takes(*CLUSTER, "nodes.allow", "nodes.skip", *RULES, *HOSTS)
def doctor(settings: Given, notify_test: NotifyTestOption = False) -> None:
    """Check everything that a rollout needs, and name the fix of what is missing; touch nothing.

    \b
    Examples:
      rollout doctor
      rollout doctor -l pool=web -o json
    """
    from rollout.cli.stages.doctor import examined, metrics_checks, notification_checks
    from rollout.gather.doctor.checks import Verdict, ordered
    from rollout.report.doctor import doctor_document, doctor_text

    rules = policy_of(settings)
    name = settings.cluster.name or settings.cluster.context or "the cluster"
    places = (*notification_checks(settings.notify, name, test=notify_test), *metrics_checks(settings.metrics))
    checks = ordered((*places, *examined(settings, rules)))
    output = settings.output
    output.show(doctor_document(checks), lambda: doctor_text(checks, every=bool(output.verbose), width=output.width))
    if any(check.verdict is Verdict.FAIL for check in checks):
        raise typer.Exit(ExitCode.ERROR)
