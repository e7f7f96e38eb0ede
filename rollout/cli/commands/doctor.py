from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import typer
from msgspec.structs import replace

from rollout.adapters.notify import DeliveryError, destinations
from rollout.cli import wiring
from rollout.cli.flags import NODE_ARGUMENTS, takes
from rollout.cli.options import option
from rollout.cli.settings.reading import RULES, CommandSettings
from rollout.cli.settings.schema import NotifySettings
from rollout.cli.stages.cluster import connect
from rollout.cli.stages.rollout_spec import RolloutSpec, new_rollout_spec
from rollout.errors import ExitCode, RolloutError
from rollout.gather.cluster.snapshot import read_identity
from rollout.gather.doctor.checks import (
    Check,
    CheckName,
    Fix,
    Verdict,
    error_check,
    passed,
    sort_checks,
    warned,
)
from rollout.model.notification import Note, render_note
from rollout.model.timestamps import timestamp

if TYPE_CHECKING:
    from rollout.cli.stages.doctor import Outlook


@takes("cluster", *RULES, "ssh", arguments=NODE_ARGUMENTS)
def doctor(
    settings: CommandSettings, notify_test: bool = option(False, "Send a test notification")
) -> None:
    """Check everything that a rollout needs, and print a fix for each problem. Changes nothing.

    \b
    Examples:
      rollout doctor
      rollout doctor -l pool=web -o json
    """
    output = settings.output
    spec = new_rollout_spec(settings)
    cluster_name = settings.cluster.name or settings.cluster.context or "the cluster"
    notification_checks = _notification_checks(settings.notify, cluster_name, test=notify_test)
    cluster_checks, outlook = _check_cluster(spec)
    checks = sort_checks((*notification_checks, *cluster_checks))
    from rollout.cli.stages.doctor import find_next_step
    from rollout.report.doctor import doctor_document, doctor_text

    next_step = find_next_step(checks, outlook)
    if next_step.command:
        next_step = replace(next_step, command=settings.with_typed_settings(next_step.command))
    text = partial(
        doctor_text, checks, show_all=bool(output.verbose), width=output.width, follow_up=next_step
    )
    output.show(doctor_document(checks), text)
    if any(check.verdict is Verdict.FAIL for check in checks):
        raise typer.Exit(ExitCode.ERROR)


def _check_cluster(spec: RolloutSpec) -> "tuple[Sequence[Check], Outlook | None]":
    subject = spec.settings.cluster.context or "current context"
    try:
        connections = connect(spec.settings)
        subject = connections.api.server
        identity = read_identity(connections.api)
    except RolloutError as error:
        return (error_check(CheckName.KUBECONFIG, subject, error),), None
    # The planner takes as long to import as a request.
    from rollout.cli.stages.doctor import check_cluster

    return check_cluster(connections, spec, identity)


def _notification_checks(options: NotifySettings, cluster: str, *, test: bool) -> Iterator[Check]:
    body = "rollout doctor --notify-test sent this. Nothing has happened."
    at = timestamp(wiring.now())
    note = render_note(
        Note(event="test", at=at, cluster=cluster, title="test notification", body=body)
    )
    for destination in destinations(options.url):
        try:
            if test:
                destination.send(note)
        except DeliveryError as error:
            yield warned(
                CheckName.NOTIFICATIONS,
                destination.name,
                f"the test was not delivered: {error}",
                Fix("Check its URL in notify.url."),
            )
        else:
            result = "accepted a test" if test else "not tried: --notify-test sends a test"
            yield passed(CheckName.NOTIFICATIONS, destination.name, result)
