"""`rollout pause`, `unpause` and `release`: what people have all rollouts remember."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated

import typer

from rollout.cli import wiring
from rollout.cli.flags import CLUSTER, takes
from rollout.cli.settings.output import Output
from rollout.cli.settings.reading import Given
from rollout.cli.settings.values import node_name, one_line, time_meant, written_time
from rollout.cli.terminal import say
from rollout.errors import ApiError, UsageError
from rollout.model.cluster import Node
from rollout.model.memory import Memory, Pause
from rollout.model.policy import Selection
from rollout.model.text import printable, shortened
from rollout.ports import ClusterApi

NodesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="NODE", show_default=False, help="The nodes, by their names.")
]
_LONGEST_REASON = 120


def _reason(value: str) -> str:
    """Return a sentence, which is not too long to be shown in one line."""
    if len(value) > _LONGEST_REASON:
        raise ValueError(f"it has {len(value)} characters; at most {_LONGEST_REASON} are kept. Make it shorter.")
    return one_line(value)


AllOption = Annotated[
    bool, typer.Option("--all", help="All nodes at once, also those that join later, instead of single ones")
]
EndAllOption = Annotated[
    bool, typer.Option("--all", help="End every pause: that of all nodes, and that of each node paused by name")
]
ReasonOption = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", parser=_reason, show_default=False, help="Why; everybody sees it"),
]
UntilOption = Annotated[
    str,
    typer.Option(
        "--until",
        metavar="TIME",
        parser=written_time,
        show_default=False,
        help="When it ends by itself: 8h, 2d, or 2026-11-23T06:00Z (UTC where no zone is given)",
    ),
]


@takes(*CLUSTER)
def pause(
    settings: Given,
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
    from rollout.execution.record.memory import pause_node
    from rollout.planning.eligibility.memory import with_pause

    api, names = _named(settings, node, all)
    now = api.server_time() or wiring.system_clock().now()
    end = time_meant(until, now, "--until")
    standing = Pause(wiring.operator(), _written(now), reason, _written(end) if end else "")
    if all:
        before, _ = _change_memory(settings, partial(with_pause, pause=standing))
        if before.pause and not before.pause.is_over(now):
            say(f"replaces: {before.pause}")
    for name in names:
        pause_node(api, name, standing)
    _show(names, standing, settings.output, everything=all)


@takes(*CLUSTER)
def unpause(
    settings: Given,
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
    from rollout.execution.record.memory import unpause_node
    from rollout.gather.cluster.snapshot import read_nodes
    from rollout.model.node_marks import pause_on, why_paused
    from rollout.planning.eligibility.memory import with_pause

    api, names = _named(settings, node, all)
    before: Memory | None = None
    if all:
        before, _ = _change_memory(settings, partial(with_pause, pause=None))
    nodes = with_patience(lambda: read_nodes(api))
    ended = [one.name for one in nodes if (all or one.name in names) and pause_on(one) is not None]
    for name in ended:
        unpause_node(api, name)
    _show_ended(ended, names, before, settings.output)
    rest = [one for one in nodes if (all or one.name in names) and one.name not in ended]
    if left := [one.name for one in rest if why_paused(one, None)]:
        say(f"still paused, by another tool's annotation: {shortened(left)}")


def _named(settings: Given, given: list[str] | None, everything: bool) -> tuple[ClusterApi, Sequence[str]]:
    """Return the API server, and the nodes that are meant: names that exist, or none where all are."""
    from rollout.cli.stages.gather import chosen, with_patience
    from rollout.gather.cluster.snapshot import read_nodes

    words = [word.strip() for text in given or () for word in text.split(",")]
    written = tuple(dict.fromkeys(node_name(word) for word in words if word))
    if bool(written) == everything:
        raise UsageError("name the nodes, or --all", hint="For example: worker-2 worker-3; or all of them: --all")
    api = wiring.cluster_api(settings.cluster)
    nodes: Sequence[Node] = with_patience(lambda: read_nodes(api))
    return api, chosen(nodes, nodes, Selection(nodes=written)) if written else ()


def _show(names: Sequence[str], standing: Pause, output: Output, *, everything: bool) -> None:
    from rollout.report.document_types import PauseReport

    of_nodes = PauseReport(
        all=everything, nodes=names, by=standing.by, at=standing.at, reason=standing.reason, until=standing.until
    )
    which, flag = ("All nodes", "--all") if everything else (shortened(names), " ".join(names))
    message = f"{which}: {printable(str(standing))}.\nEnd it:\n    rollout unpause {flag}"
    output.show(of_nodes, lambda: message, is_prose=True)


def _show_ended(ended: Sequence[str], names: Sequence[str], before: Memory | None, output: Output) -> None:
    from rollout.report.document_types import UnpauseReport

    of_all = before is not None and before.pause is not None
    lines = [f"No longer paused: {shortened(ended)}."] if ended else []
    if before is not None and before.pause is not None:
        lines.append(f"All nodes are no longer paused. They were {printable(str(before.pause))}.")
    if before is not None and before.aborted is not None:
        lines.append("Unattended passes may begin again.")
    not_paused = [name for name in names if name not in ended]
    lines += [f"Not paused by rollout: {shortened(not_paused)}."] if not_paused else []
    message = "\n".join(lines or ["Nothing to end: nothing is paused here."])
    output.show(UnpauseReport(all=of_all, nodes=ended), lambda: message, is_prose=True)


def _written(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


VersionArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="VERSION", help="The held versions, as `rollout status` shows them.", show_default=False),
]
ForgetOption = Annotated[
    list[str] | None, typer.Option("--node", metavar="NAME", help="Forget the failures of this node. Repeatable")
]
ForgetAllOption = Annotated[bool, typer.Option("--all", help="Forget every failure, of versions and of nodes")]


@takes(*CLUSTER)
def release(
    settings: Given,
    version: VersionArgument = None,
    node: ForgetOption = None,
    all: ForgetAllOption = False,  # noqa: A002 - the flag's name
) -> None:
    """End the hold of a version that failed on too many nodes: its nodes are taken again.

    Nothing is rebooted by this. With --all also a memory that is not understood begins anew; a pause stays.

    \b
    Examples:
      rollout release 4081.2.1
      rollout release --node worker-2
    """
    from rollout.planning.eligibility.memory import released
    from rollout.report.document_types import ReleaseReport

    versions, nodes = tuple(dict.fromkeys(version or ())), tuple(dict.fromkeys(map(node_name, node or ())))
    if bool(versions or nodes) == all:
        raise UsageError("name what to release, or --all", hint="See what is held: rollout status")
    before, after = _change_memory(
        settings, partial(released, versions=versions, nodes=nodes, everything=all), anew=all
    )
    gone = [name for name in before.versions if name not in after.versions]
    forgotten = [name for name in before.nodes if name not in after.nodes]
    unknown = [name for name in (*versions, *nodes) if name not in {*gone, *forgotten}]
    document = ReleaseReport(versions=gone, nodes=forgotten, unknown=unknown)
    settings.output.show(document, lambda: _released_text(gone, forgotten, unknown), is_prose=True)


def _released_text(versions: list[str], nodes: list[str], unknown: list[str]) -> str:
    lines = [f"Released: {shortened(versions)}."] if versions else []
    lines += [f"Failures forgotten of: {shortened(nodes)}."] if nodes else []
    lines += [f"Nothing was held against: {shortened(unknown)}."] if unknown else []
    return "\n".join(lines or ["Nothing to release: no failure is remembered."])


def _change_memory(settings: Given, change: Callable[[Memory], Memory], *, anew: bool = False) -> tuple[Memory, Memory]:
    """Return the memory before and after the change; `ApiError` where it is not understood, but to be begun `anew`."""
    from rollout.cli.stages.gather import with_patience
    from rollout.execution.record.memory import change_memory
    from rollout.gather.cluster.memory import read_stored_memory

    api, namespace = wiring.cluster_api(settings.cluster), settings.lock.namespace
    before = with_patience(lambda: read_stored_memory(api, namespace)).content
    if before.problem and not anew:
        raise ApiError(before.problem, hint="Reset it: rollout release --all")
    return before, with_patience(lambda: change_memory(api, namespace, change, anew=anew))
