"""`rollout pause` and `rollout unpause`."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.options import values
from rollout.cli.options.cluster import ClusterOptions, LeaseOptions
from rollout.cli.options.declaration import OWN, Flag
from rollout.cli.options.general import GeneralOptions

if TYPE_CHECKING:
    from rollout.model.cluster import Node
    from rollout.model.memory import Memory, Pause
    from rollout.ports import ClusterApi

NodesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="NODE", show_default=False, help="The nodes, by their names.")
]
AllOption = Annotated[bool, Flag(OWN, "All nodes at once, also those that join later, instead of single ones.")]
EndAllOption = Annotated[bool, Flag(OWN, "End every pause: that of all nodes, and that of each node paused by name.")]
ReasonOption = Annotated[str, Flag(OWN, "The reason; everybody sees it.", "TEXT", read=values.reason)]
UntilOption = Annotated[
    str,
    Flag(
        OWN,
        "When it ends by itself: 8h, 2d, or 2026-11-23T06:00Z (UTC where no zone is given).",
        "TIME",
        read=values.until,
    ),
]


def pause(
    cluster: ClusterOptions,
    lease: LeaseOptions,
    general: GeneralOptions,
    node: NodesArgument = None,
    all: AllOption = False,  # noqa: A002 - the flag's name
    reason: ReasonOption = "",
    until: UntilOption = "",
) -> None:
    """Have no rollout begin these nodes, or any: plans leave them out, and one that runs stops before the next.

    Nodes that are under way are finished. Nothing is cordoned; `rollout abort` ends no pause.

    \b
    Examples:
      rollout pause worker-2 --reason "disk is being replaced" --until 2d
      rollout pause --all --until 2026-11-30T06:00Z
    """
    from rollout.cli import wiring
    from rollout.cli.stages.remembering import change_memory
    from rollout.cli.terminal import say
    from rollout.execution.record.memory import pause_node
    from rollout.model.memory import Pause
    from rollout.planning.memory import with_pause

    api, names = _named(cluster, node, all)
    now = api.server_time() or wiring.system_clock().now()
    standing = Pause(wiring.operator(), _written(now), reason, _written(end) if (end := values.end(until, now)) else "")
    if all:
        before, _ = change_memory(cluster, lease.lease_namespace, partial(with_pause, pause=standing))
        if before.pause and not before.pause.is_over(now):
            say(f"replaces: {before.pause}")
    for name in names:
        pause_node(api, name, standing)
    _show(names, standing, everything=all, as_json=general.as_json)


def unpause(
    cluster: ClusterOptions,
    lease: LeaseOptions,
    general: GeneralOptions,
    node: NodesArgument = None,
    all: EndAllOption = False,  # noqa: A002 - the flag's name
) -> None:
    """End the pause of these nodes; or, with --all, every pause: that of all nodes, and those of single ones.

    With --all, passes of `rollout operate` may also begin again after a `rollout abort`.

    \b
    Examples:
      rollout unpause worker-2
      rollout unpause --all
    """
    from rollout.cli.stages.gather import with_patience
    from rollout.cli.stages.remembering import change_memory
    from rollout.cli.terminal import say
    from rollout.execution.record.memory import unpause_node
    from rollout.gather.cluster.snapshot import read_nodes
    from rollout.model.pause import pause_on, why_paused
    from rollout.model.text import shortened
    from rollout.planning.memory import with_pause

    api, names = _named(cluster, node, all)
    before: Memory | None = None
    if all:
        before, _ = change_memory(cluster, lease.lease_namespace, partial(with_pause, pause=None))
    nodes = with_patience(lambda: read_nodes(api))
    ended = [one.name for one in nodes if (all or one.name in names) and pause_on(one) is not None]
    for name in ended:
        unpause_node(api, name)
    _show_ended(ended, names, before, as_json=general.as_json)
    rest = [one for one in nodes if (all or one.name in names) and one.name not in ended]
    if left := [one.name for one in rest if why_paused(one, None)]:
        say(f"still paused, by another tool's annotation: {shortened(left)}")


def _named(cluster: ClusterOptions, given: list[str] | None, everything: bool) -> "tuple[ClusterApi, Sequence[str]]":
    """The API server, and the nodes that are meant: names that exist, or none where all are."""
    from rollout.cli import wiring
    from rollout.cli.options.nodes import node_names
    from rollout.cli.stages.gather import chosen, with_patience
    from rollout.errors import UsageError
    from rollout.gather.cluster.snapshot import read_nodes
    from rollout.model.policy import Selection

    written = node_names(given)
    if bool(written) == everything:
        raise UsageError("name the nodes, or --all", hint="For example: worker-2 worker-3; or all of them: --all")
    api = wiring.cluster_api(cluster)
    nodes: Sequence[Node] = with_patience(lambda: read_nodes(api))
    return api, chosen(nodes, nodes, Selection(nodes=written)) if written else ()


def _show(names: Sequence[str], standing: "Pause", *, everything: bool, as_json: bool) -> None:
    from rollout.cli.terminal import show_bytes, show_lines
    from rollout.model.json_text import json_document
    from rollout.model.text import printable, shortened
    from rollout.report.document_types import PauseReport

    if as_json:
        of_nodes = PauseReport(
            all=everything, nodes=names, by=standing.by, at=standing.at, reason=standing.reason, until=standing.until
        )
        show_bytes(json_document(of_nodes))
        return
    flag = "--all" if everything else " ".join(names)
    show_lines(
        f"{'All nodes' if everything else shortened(names)}: {printable(str(standing))}.\n"
        f"End it: rollout unpause {flag}"
    )


def _show_ended(ended: Sequence[str], names: Sequence[str], before: "Memory | None", *, as_json: bool) -> None:
    from rollout.cli.terminal import show_bytes, show_lines
    from rollout.model.json_text import json_document
    from rollout.model.text import printable, shortened
    from rollout.report.document_types import UnpauseReport

    of_all = before is not None and before.pause is not None
    if as_json:
        show_bytes(json_document(UnpauseReport(all=of_all, nodes=ended)))
        return
    lines = [f"No longer paused: {shortened(ended)}."] if ended else []
    if before is not None and before.pause is not None:
        lines.append(f"All nodes are no longer paused. They were {printable(str(before.pause))}.")
    if before is not None and before.aborted is not None:
        lines.append("Unattended passes may begin again.")
    not_paused = [name for name in names if name not in ended]
    lines += [f"Not paused by rollout: {shortened(not_paused)}."] if not_paused else []
    show_lines("\n".join(lines or ["Nothing to end: nothing is paused here."]))


def _written(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
