"""`rollout pause`, `unpause`, `release` and `evidence`: what all rollouts remember, by people's word and by proof."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from rollout.adapters.evidence_files import sign
from rollout.adapters.local_files import (
    check_folder,
    check_target,
    make_folder,
    names_folder,
    write_whole,
)
from rollout.cli import wiring
from rollout.cli.flags import LINES, argument, option, takes
from rollout.cli.settings.reading import Given
from rollout.cli.settings.values import future_time, node_name, one_line
from rollout.cli.stages.cluster import read_nodes
from rollout.cli.stages.connections import with_patience
from rollout.cli.stages.selection import selected_names
from rollout.cli.suggestions import held_versions, node_names, proven_versions
from rollout.cli.terminal import say, show_document
from rollout.errors import UsageError
from rollout.execution.record.memory import change_memory, require_memory
from rollout.execution.record.pauses import pause_node, unpause_node
from rollout.gather.cluster.documents import memory_of, read_memory, read_stored_memory
from rollout.gather.cluster.snapshot import read_identity
from rollout.model.cluster import Node
from rollout.model.evidence import ProvingCluster
from rollout.model.json_text import json_document
from rollout.model.memory import NO_MEMORY, Memory, Pause
from rollout.model.node_marks import pause_on, why_paused
from rollout.model.policy import Selection
from rollout.model.text import counted, printable, shell_word, shortened
from rollout.model.timestamps import whole_second
from rollout.planning.eligibility.evidence import evidence_of
from rollout.planning.eligibility.memory import with_pause, without_abort, without_failures
from rollout.ports import ClusterApi
from rollout.report.document_types import PauseReport, ReleaseReport, UnpauseReport

_NODES: list[str] | None = argument(None, "Names of the nodes.", "NODE", node_names)
_UNTIL = "End the pause then: 8h, 2d, or 2026-11-23T06:00Z (UTC if no time zone is given)"
# A longer one would not be read back, and with it would go the end of the pause.
_LONGEST_REASON = 120


def _reason(value: str) -> str:
    if len(value) > _LONGEST_REASON:
        raise ValueError(
            f"it has {len(value)} characters; at most {_LONGEST_REASON} are kept. Make it shorter."
        )
    return one_line(value)


@takes("cluster")
def pause(
    settings: Given,
    node: list[str] | None = _NODES,
    all: bool = option(False, "Pause all nodes, including those that join later"),  # noqa: A002 - the flag's name
    reason: str = option(
        "", "Reason for the pause, which status and plan show", "TEXT", parser=_reason
    ),
    until: str | None = option(None, _UNTIL, "TIME"),
) -> None:
    """Keep rollouts from starting these nodes, or with --all any node.

    Nodes in flight are finished. Does not cordon nodes. `rollout abort` does not end a pause.

    \b
    Examples:
      rollout pause worker-2 --reason "disk is being replaced" --until 2d
      rollout pause --all --until 2026-11-30T06:00Z
    """
    future_time(until, wiring.now(), "--until")  # what is no time is told before anything is asked
    api, nodes = _meant(settings, node, everything=all)
    now = api.server_time() or wiring.now()
    names = [] if all else [one.name for one in nodes]
    end = future_time(until, now, "--until")
    standing = Pause(wiring.operator(), whole_second(now), reason, whole_second(end) if end else "")
    if all:
        before, _ = _change_memory(settings, partial(with_pause, pause=standing))
        if before.pause and not before.pause.is_over(now):
            say(f"replaces: {before.pause}")
    for name in names:
        pause_node(api, name, standing)
    document = PauseReport(
        all=all,
        nodes=names,
        by=standing.by,
        at=standing.at,
        reason=standing.reason,
        until=standing.until,
    )
    which, whom = ("All nodes", "--all") if all else (shortened(names), " ".join(names))
    text = f"{which}: {printable(str(standing))}.\nEnd it:\n    rollout unpause {whom}"
    settings.output.show(document, lambda: text, is_prose=True)


@takes("cluster")
def unpause(
    settings: Given,
    node: list[str] | None = _NODES,
    all: bool = option(False, "End the pause of all nodes; nodes paused by name stay paused"),  # noqa: A002 - the flag's name
    unattended: bool = option(False, "Let rollout operate start nodes again after rollout abort"),
) -> None:
    """End the pause of these nodes, the pause of all nodes, or the stop of unattended passes after an abort.

    Ends only what you name. Prints what still keeps nodes from starting, and the command that ends
    it.

    \b
    Examples:
      rollout unpause worker-2
      rollout unpause --all
      rollout unpause --unattended
    """
    api, nodes = _meant(settings, node, everything=all, nothing=unattended)
    ended = [] if all else [one.name for one in nodes if pause_on(one) is not None]
    change = partial(_without_pauses, all_nodes=all, unattended=unattended)
    before = _change_memory(settings, change)[0] if all or unattended else NO_MEMORY
    for name in ended:
        unpause_node(api, name)
    rest = [one for one in nodes if one.name not in ended]
    now = api.server_time()
    left = _PausesLeft(
        is_aborted=before.aborted is not None and not unattended,
        by_name=_paused_by_name(rest, now) if all else (),
    )
    lines = [f"No longer paused: {shortened(ended)}."] if ended else []
    if all and before.pause is not None:
        lines.append(f"All nodes are no longer paused. They were {printable(str(before.pause))}.")
    if unattended and before.aborted is not None:
        lines.append("Unattended passes may start nodes again.")
    if rest and not all:
        lines.append(f"Not paused by rollout: {shortened([one.name for one in rest])}.")
    nothing = (
        "There is no pause of all nodes." if all else "Nothing to end: nothing is paused here."
    )
    text = "\n".join([*(lines or [nothing]), *left.lines])
    has_ended_all = all and before.pause is not None
    has_ended_stop = unattended and before.aborted is not None
    document = UnpauseReport(all=has_ended_all, nodes=ended, unattended=has_ended_stop)
    settings.output.show(document, lambda: text, is_prose=True)
    if foreign := [one.name for one in rest if pause_on(one) is None and why_paused(one, None)]:
        say(f"still paused, by another tool's annotation: {shortened(foreign)}")


def _without_pauses(memory: Memory, *, all_nodes: bool, unattended: bool) -> Memory:
    if all_nodes:
        memory = with_pause(memory, pause=None)
    if unattended:
        memory = without_abort(memory)
    return memory


def _paused_by_name(nodes: Sequence[Node], now: datetime | None) -> tuple[str, ...]:
    pauses = ((node.name, pause_on(node)) for node in nodes)
    return tuple(name for name, pause in pauses if pause is not None and not pause.is_over(now))


@dataclass(frozen=True, slots=True)
class _PausesLeft:
    """What still keeps nodes from starting once a pause has ended."""

    is_aborted: bool
    by_name: tuple[str, ...]

    @property
    def lines(self) -> Iterator[str]:
        """Say what keeps nodes from starting, each with the command that ends it."""
        if self.by_name:
            names = " ".join(map(shell_word, self.by_name))
            yield (
                f"Paused by name: {shortened(self.by_name)}. End these pauses:\n    rollout unpause"
                f" {names}"
            )
        if self.is_aborted:
            yield (
                "Unattended passes are still stopped, because a rollout was aborted. Let them start"
                " nodes:\n    rollout unpause --unattended"
            )


def _meant(
    settings: Given, names: list[str] | None, *, everything: bool, nothing: bool = False
) -> tuple[ClusterApi, Sequence[Node]]:
    """Return the API server and the nodes to act on.

    These are the nodes of these names, or `everything`: all nodes. `nothing` allows to name none.
    """
    if (names and everything) or not (names or everything or nothing):
        raise UsageError(
            "name the nodes, or --all", hint="For example: worker-2 worker-3; or all of them: --all"
        )
    api = wiring.cluster_api(settings)
    if not (names or everything):
        return api, ()
    nodes = read_nodes(api)
    selection = Selection(nodes=tuple(map(node_name, names or ())))
    selected = selected_names(nodes, nodes, selection)
    return api, [node for node in nodes if node.name in selected]


@takes("cluster")
def release(
    settings: Given,
    version: list[str] | None = argument(
        None, "Held versions, as rollout status shows them.", "VERSION", held_versions
    ),
    node: list[str] | None = option(
        None, "Forget the failures of this node; repeatable", "NAME", autocompletion=node_names
    ),
    all: bool = option(False, "Forget all failures of versions and nodes"),  # noqa: A002 - the flag's name
) -> None:
    """Release a version that is held because it failed on too many nodes.

    The next rollout includes its nodes again. Reboots nothing and ends no pause. --all also resets
    an unreadable memory, including a pause of all nodes stored in it.

    \b
    Examples:
      rollout release 4081.2.1
      rollout release --node worker-2
    """
    versions = tuple(dict.fromkeys(version or ()))
    nodes = tuple(dict.fromkeys(map(node_name, node or ())))
    if bool(versions or nodes) == all:
        raise UsageError("name what to release, or --all", hint="See what is held: rollout status")
    before, after = _change_memory(
        settings,
        partial(without_failures, versions=versions, nodes=nodes, everything=all),
        anew=all,
    )
    gone = [name for name in before.versions if name not in after.versions]
    forgotten = [name for name in before.nodes if name not in after.nodes]
    unknown = [name for name in (*versions, *nodes) if name not in {*gone, *forgotten}]
    parts = {
        "Released": gone,
        "Failures forgotten of": forgotten,
        "Nothing was held against": unknown,
    }
    lines = [f"{what}: {shortened(names)}." for what, names in parts.items() if names]
    if before.problem:
        lines.append(
            f"Reset: {memory_of(settings.lock.namespace).origin}. No node is paused by `pause"
            " --all` now."
        )
    text = "\n".join(lines or ["Nothing to release: no failure is remembered."])
    document = ReleaseReport(
        versions=gone, nodes=forgotten, unknown=unknown, reset=bool(before.problem)
    )
    settings.output.show(document, lambda: text, is_prose=True)


def _change_memory(
    settings: Given, change: Callable[[Memory], Memory], *, anew: bool = False
) -> tuple[Memory, Memory]:
    """Change the memory and return it as it was before and is after.

    A memory that cannot be read raises `BlockedError`; `anew` replaces it instead.
    """
    api = wiring.cluster_api(settings)
    namespace = settings.lock.namespace
    before = with_patience(read_stored_memory, api, namespace).content
    if not anew:
        require_memory(before)
    return before, with_patience(lambda: change_memory(api, namespace, change, anew=anew))


@takes("cluster", formats=LINES)
def evidence(
    settings: Given,
    version: str = argument(
        "",
        "Version to export; default: the one that a node was last rebooted into.",
        "VERSION",
        proven_versions,
    ),
    out: str | None = option(
        None, "File to write, or a folder/ for VERSION-CLUSTER.json; default: stdout", "FILE"
    ),
    sign_key: Path | None = option(
        None, "Sign the file with this SSH key; writes the signature to FILE.sig", "FILE"
    ),
) -> None:
    """Export proof that a version works, for other clusters to require.

    Counts the nodes that rollouts rebooted into the version, verified, and that are Ready with it
    now. Does not connect to the hosts.

    \b
    Examples:
      rollout evidence --set cluster.name=staging --out evidence/ --sign-key ~/.ssh/staging
      rollout operate --require-evidence configmap --config cluster.toml     # in the other cluster
    """
    if sign_key is not None and out is None:
        raise UsageError(
            "--sign-key needs --out FILE", hint="The signature is written beside it, as FILE.sig."
        )
    is_folder = out is not None and (names_folder(out) or Path(out).is_dir())
    if out is not None and is_folder:
        check_folder(Path(out))
    elif out is not None:
        check_target(Path(out))
    api = wiring.cluster_api(settings)
    nodes = read_nodes(api)
    memory = with_patience(read_memory, api, settings.lock.namespace)
    require_memory(memory)
    cluster = ProvingCluster(with_patience(read_identity, api).uid, settings.cluster.name)
    document = evidence_of(version, nodes, memory, cluster, api.server_time() or wiring.now())
    content = json_document(document)
    if out is None:
        show_document(content)
        return
    signature = sign(content, sign_key) if sign_key else None
    file = Path(out)
    if is_folder:
        make_folder(file)
        # The first part of the UID tells clusters apart that share a folder.
        cluster_id, _, _ = cluster.uid.partition("-")
        file = file / f"{document.version}-{cluster_id}.json"
    write_whole(file, content)
    if signature is not None:
        write_whole(file.with_name(f"{file.name}.sig"), signature)
    failed = f", {len(document.failed)} failed" if document.failed else ""
    proven = f"{counted(len(document.nodes), 'node')}{failed}, verified for {document.hours:g} h"
    say(f"{document.version}: {proven}. Written: {file}")
