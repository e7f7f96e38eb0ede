from typing import TYPE_CHECKING

from rollout.cli.flags import NODE_ARGUMENTS, NODES, takes
from rollout.cli.options import option
from rollout.cli.settings.reading import SELECTION, CommandSettings
from rollout.cli.settings.schema import OutputFormat
from rollout.errors import UsageError

if TYPE_CHECKING:
    from rollout.cli.stages.rollout_spec import RolloutSpec


@takes("cluster", *SELECTION, "ssh", formats=NODES, arguments=NODE_ARGUMENTS)
def status(
    settings: CommandSettings,
    run: bool = option(False, "Show the running or interrupted rollout instead of the nodes"),
    watch: bool = option(False, "Watch the rollout until it ends", "", "--watch", "-w"),
    web: bool = option(
        False, "Show the rollout and past runs in a browser on this machine, until Ctrl-C"
    ),
    pending: bool = option(False, "Show only pending nodes and nodes in the current rollout"),
) -> None:
    """Show which nodes are waiting for a reboot, why others are not, and any rollout in progress.

    \b
    Examples:
      rollout status worker-1 worker-2
      rollout status -l '!node-role.kubernetes.io/control-plane' -o json
      rollout status --watch
      rollout status --web
    """
    from rollout.cli import wiring
    from rollout.cli.stages.rollout_spec import new_rollout_spec

    spec = new_rollout_spec(settings)
    if (watch or run) and settings.output.format is OutputFormat.NAME:
        raise UsageError(
            "-o name shows nodes, and not a rollout", hint="Drop --run and --watch, or -o name."
        )
    if web:
        from rollout.cli.stages import status as stage

        _refuse_beside_web(settings, has_other_flags=watch or run or pending)
        stage.serve_run(settings, wiring.cluster_api(settings))
    elif watch or run:
        from rollout.cli.stages import status as stage

        show = stage.watch_run if watch else stage.show_run
        show(wiring.cluster_api(settings), settings.lock.namespace, settings.output)
    else:
        _show_nodes(spec, only_pending=pending)


def _show_nodes(spec: "RolloutSpec", *, only_pending: bool) -> None:
    from rollout.cli.stages.cluster import connect, read_nodes

    connections = connect(spec.settings)
    nodes = read_nodes(connections.api)
    from rollout.cli.stages.status import show_nodes

    show_nodes(connections, spec, nodes, only_pending=only_pending)


def _refuse_beside_web(settings: CommandSettings, *, has_other_flags: bool) -> None:
    is_text = settings.output.format in (OutputFormat.TEXT, OutputFormat.WIDE)
    if has_other_flags or settings.nodes.node or not is_text:
        raise UsageError(
            "--web shows the whole rollout as a page", hint="Drop the other flags and the nodes."
        )
