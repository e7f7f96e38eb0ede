"""`rollout status`."""

from rollout.cli.flags import NODE_ARGUMENTS, NODES, takes
from rollout.cli.options import option
from rollout.cli.settings.reading import SELECTION, Given
from rollout.cli.settings.schema import OutputFormat
from rollout.errors import UsageError


@takes("cluster", *SELECTION, "ssh", formats=NODES, arguments=NODE_ARGUMENTS)
def status(
    settings: Given,
    run: bool = option(False, "Show the running or interrupted rollout instead of the nodes"),
    watch: bool = option(False, "Watch the rollout until it ends", "", "--watch", "-w"),
    pending: bool = option(False, "Only pending nodes and nodes in the current rollout"),
) -> None:
    """Show which nodes are waiting for a reboot, why others are not, and any rollout in progress.

    \b
    Examples:
      rollout status worker-1 worker-2
      rollout status -l '!node-role.kubernetes.io/control-plane' -o json
      rollout status --watch
    """
    from rollout.cli import wiring
    from rollout.cli.stages import status as stage
    from rollout.cli.stages.cluster import connect
    from rollout.cli.stages.request import fresh_request

    request = fresh_request(settings)
    if (watch or run) and settings.output.format is OutputFormat.NAME:
        raise UsageError(
            "-o name shows nodes, and not a rollout", hint="Drop --run and --watch, or -o name."
        )
    if watch or run:
        show = stage.watch_run if watch else stage.show_run
        show(wiring.cluster_api(settings), settings.lock.namespace, settings.output)
    else:
        stage.show_nodes(connect(settings), request, only_pending=pending)
