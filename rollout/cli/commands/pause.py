"""`rollout pause` and `rollout unpause`."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.flags import CLUSTER, takes
from rollout.cli.settings.reading import Given
from rollout.cli.settings.values import node_name, one_line
from rollout.errors import UsageError
from rollout.model.quantity import Duration

if TYPE_CHECKING:
    from rollout.model.cluster import Node
    from rollout.model.memory import Memory, Pause
    from rollout.ports import ClusterApi

NodesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="NODE", show_default=False, help="The nodes, by their names.")
]
_LONGEST_REASON = 120


def _reason(value: str) -> str:
    """A sentence, which is not too long to be shown in one line."""
    if len(value) > _LONGEST_REASON:
        raise ValueError(f"it has {len(value)} characters; at most {_LONGEST_REASON} are kept. Make it shorter.")
    return one_line(value)


def _until(value: str) -> str:
    """A duration or a time, which may be empty, as it was written."""
    from rollout.model.memory import moment

    written = value.strip()
    if written and not moment(written):
        try:
            Duration.parse(written)
        except UsageError as error:
            hint = "Write a duration (8h, 2d), or a time: 2026-11-23T06:00Z."
            raise ValueError(f"{value!r} is neither a duration nor a time. {hint}") from error
    return written


def _end(written: str, now: datetime) -> datetime | None:
    """The time that is meant by a duration from `now`, or by a time (see `until`); None where nothing is written."""
    from rollout.model.memory import moment

    if not written:
        return None
    time = moment(written)
    try:
        meant = time.astimezone(UTC) if time else now + timedelta(seconds=Duration.parse(written))
    except OverflowError as error:
        raise UsageError(f"--until: {written!r} is beyond the calendar", hint="The last year is 9999.") from error
    if meant <= now:
        raise UsageError(f"--until: {written!r} is over already", hint=f"It is {now:%Y-%m-%dT%H:%M}Z now.")
    return meant


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
        parser=_until,
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
    from rollout.cli import wiring
    from rollout.cli.stages.remembering import change_memory
    from rollout.cli.terminal import say
    from rollout.execution.record.memory import pause_node
    from rollout.model.memory import Pause
    from rollout.planning.eligibility.memory import with_pause

    api, names = _named(settings, node, all)
    now = api.server_time() or wiring.system_clock().now()
    standing = Pause(wiring.operator(), _written(now), reason, _written(end) if (end := _end(until, now)) else "")
    if all:
        before, _ = change_memory(settings, partial(with_pause, pause=standing))
        if before.pause and not before.pause.is_over(now):
            say(f"replaces: {before.pause}")
    for name in names:
        pause_node(api, name, standing)
    _show(names, standing, everything=all, as_json=settings.output.as_json)


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
    from rollout.cli.stages.remembering import change_memory
    from rollout.cli.terminal import say
    from rollout.execution.record.memory import unpause_node
    from rollout.gather.cluster.snapshot import read_nodes
    from rollout.model.node_marks import pause_on, why_paused
    from rollout.model.text import shortened
    from rollout.planning.eligibility.memory import with_pause

    api, names = _named(settings, node, all)
    before: Memory | None = None
    if all:
        before, _ = change_memory(settings, partial(with_pause, pause=None))
    nodes = with_patience(lambda: read_nodes(api))
    ended = [one.name for one in nodes if (all or one.name in names) and pause_on(one) is not None]
    for name in ended:
        unpause_node(api, name)
    _show_ended(ended, names, before, as_json=settings.output.as_json)
    rest = [one for one in nodes if (all or one.name in names) and one.name not in ended]
    if left := [one.name for one in rest if why_paused(one, None)]:
        say(f"still paused, by another tool's annotation: {shortened(left)}")


def _named(settings: Given, given: list[str] | None, everything: bool) -> "tuple[ClusterApi, Sequence[str]]":
    """The API server, and the nodes that are meant: names that exist, or none where all are."""
    from rollout.cli import wiring
    from rollout.cli.stages.gather import chosen, with_patience
    from rollout.gather.cluster.snapshot import read_nodes
    from rollout.model.policy import Selection

    words = [word.strip() for text in given or () for word in text.split(",")]
    written = tuple(dict.fromkeys(node_name(word) for word in words if word))
    if bool(written) == everything:
        raise UsageError("name the nodes, or --all", hint="For example: worker-2 worker-3; or all of them: --all")
    api = wiring.cluster_api(settings.cluster)
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
