"""`rollout release`."""

from functools import partial
from typing import Annotated

import typer

from rollout.cli.flags import CLUSTER, takes
from rollout.cli.settings.reading import Given
from rollout.cli.settings.values import node_name

VersionArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="VERSION", help="The held versions, as `rollout status` shows them.", show_default=False),
]
NodeOption = Annotated[
    list[str] | None, typer.Option("--node", metavar="NAME", help="Forget the failures of this node. Repeatable")
]
AllOption = Annotated[bool, typer.Option("--all", help="Forget every failure, of versions and of nodes")]


@takes(*CLUSTER)
def release(
    settings: Given,
    version: VersionArgument = None,
    node: NodeOption = None,
    all: AllOption = False,  # noqa: A002 - the flag's name
) -> None:
    """End the hold of a version that failed on too many nodes: its nodes are taken again.

    Nothing is rebooted by this. With --all also a memory that is not understood begins anew; a pause stays.

    \b
    Examples:
      rollout release 4081.2.1
      rollout release --node worker-2
    """
    from rollout.cli.stages.remembering import change_memory
    from rollout.cli.terminal import show_bytes, show_lines
    from rollout.errors import UsageError
    from rollout.model.json_text import json_document
    from rollout.planning.eligibility.memory import released
    from rollout.report.document_types import ReleaseReport

    versions, nodes = tuple(dict.fromkeys(version or ())), tuple(dict.fromkeys(map(node_name, node or ())))
    if bool(versions or nodes) == all:
        raise UsageError("name what to release, or --all", hint="See what is held: rollout status")
    before, after = change_memory(settings, partial(released, versions=versions, nodes=nodes, everything=all), anew=all)
    gone = [name for name in before.versions if name not in after.versions]
    forgotten = [name for name in before.nodes if name not in after.nodes]
    unknown = [name for name in (*versions, *nodes) if name not in {*gone, *forgotten}]
    if settings.output.as_json:
        show_bytes(json_document(ReleaseReport(versions=gone, nodes=forgotten, unknown=unknown)))
    else:
        show_lines(_text(gone, forgotten, unknown))


def _text(versions: list[str], nodes: list[str], unknown: list[str]) -> str:
    from rollout.model.text import shortened

    lines = [f"Released: {shortened(versions)}."] if versions else []
    lines += [f"Failures forgotten of: {shortened(nodes)}."] if nodes else []
    lines += [f"Nothing was held against: {shortened(unknown)}."] if unknown else []
    return "\n".join(lines or ["Nothing to release: no failure is remembered."])
