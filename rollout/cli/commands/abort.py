"""`rollout abort`."""

from typing import Annotated

import typer

from rollout.cli.options import values
from rollout.cli.options.cluster import ClusterOptions, LeaseOptions, LockOptions
from rollout.cli.options.declaration import OWN, Flag
from rollout.cli.options.general import GeneralOptions
from rollout.cli.options.run import YesOption
from rollout.cli.options.ssh import SshOptions
from rollout.errors import ExitCode
from rollout.model.quantity import Duration

WaitOption = Annotated[
    Duration,
    Flag(OWN, "How long to watch a node whose reboot may have been asked for.", "DURATION", read=values.duration),
]


def abort(
    cluster: ClusterOptions,
    ssh: SshOptions,
    lease: LeaseOptions,
    lock: LockOptions,
    general: GeneralOptions,
    yes: YesOption = False,
    wait: WaitOption = Duration(120),
) -> None:
    """Undo what an interrupted rollout has begun: its cordons, its annotations, its record.

    Nothing that anybody else has set is touched. A node that may be rebooting right now is watched, and left as it is
    where it does not come back in time.

    \b
    Examples:
      rollout abort
      rollout abort --yes --wait 5m
    """
    from rollout.cli import consent
    from rollout.cli.gathering import connect
    from rollout.cli.terminal import show
    from rollout.cli.undoing import show_undone, undo
    from rollout.cli.unfinished import find_unfinished
    from rollout.model.policy import Selection
    from rollout.report.unfinished import abort_text

    connections = connect(cluster, Selection(), ssh)
    found = find_unfinished(connections, lease.lease_namespace)
    if found is None:
        show("null" if general.as_json else "Nothing to undo: no rollout stands on this cluster.")
        return
    consent.refuse_if_nobody_can_be_asked(given=yes, as_json=general.as_json)
    if not general.as_json:
        show(abort_text(found))
    if not yes:
        consent.ask("Only 'yes' is taken for consent. Undo it? ")
    aborted = undo(connections, ssh, lease, lock, wait=wait)
    show_undone(aborted, as_json=general.as_json)
    raise typer.Exit(ExitCode.PARTIAL if aborted.left else ExitCode.OK)
