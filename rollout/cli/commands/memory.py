import os
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from rollout.adapters.evidence_files import sign
from rollout.adapters.local_files import (
    check_output_file,
    check_output_folder,
    make_folder,
    names_folder,
    write_whole,
)
from rollout.cli import wiring
from rollout.cli.flags import takes
from rollout.cli.options import argument, option
from rollout.cli.settings.reading import CommandSettings
from rollout.cli.settings.schema import OutputFormat
from rollout.cli.settings.values import (
    parse_future_time,
    parse_node_name,
    parse_one_line,
    parse_os_version,
)
from rollout.cli.stages.cluster import read_nodes, with_retries
from rollout.cli.stages.selection import selected_names
from rollout.cli.suggestions import held_versions, node_names, proven_versions
from rollout.cli.terminal import say, show_document
from rollout.errors import ApiError, ApiNotFoundError, UsageError
from rollout.execution.record.memory import change_memory, require_readable_memory
from rollout.execution.record.pauses import pause_node, unpause_node
from rollout.gather.cluster.documents import memory_document, read_memory, read_stored_memory
from rollout.gather.cluster.snapshot import read_identity
from rollout.model.cluster import Node
from rollout.model.json_text import json_document
from rollout.model.memory import NO_MEMORY, Memory, Pause
from rollout.model.node_marks import pause_on, why_paused
from rollout.model.policy import Selection
from rollout.model.text import counted, printable, shell_word, shortened
from rollout.model.timestamps import whole_second
from rollout.planning.eligibility.evidence import Evidence, ProvingCluster, make_evidence
from rollout.planning.eligibility.memory import with_hold, without_failures
from rollout.ports import ClusterApi
from rollout.report.document_types import HoldReport, PauseReport, ReleaseReport, UnpauseReport

_NODES: list[str] | None = argument(None, "Names of the nodes.", "NODE", node_names)
_STILL_STOPPED = """\
Unattended passes are still stopped, because a rollout was aborted. To start them again:
    rollout unpause --unattended"""
_UNTIL = "When to end the pause: 8h, 2d, or 2030-01-07T06:00Z (UTC if no time zone is given)"
# A longer reason could not be read back.
_LONGEST_REASON = 120


def _parse_reason(value: str) -> str:
    if len(value) > _LONGEST_REASON:
        limit = f"at most {_LONGEST_REASON} are stored"
        raise ValueError(f"it has {len(value)} characters; {limit}. Make it shorter.")
    return parse_one_line(value)


@takes("cluster")
def pause(
    settings: CommandSettings,
    node: list[str] | None = _NODES,
    all: bool = option(False, "Pause all nodes, including those that join later"),
    reason: str = option(
        "", "Reason for the pause, shown by status and plan", "TEXT", parser=_parse_reason
    ),
    until: str | None = option(None, _UNTIL, "TIME"),
) -> None:
    """Prevent rollouts from rebooting these nodes, or all nodes (--all).

    Does not affect nodes that are already being drained or rebooted, and does not cordon nodes.
    `rollout abort` does not end a pause.

    \b
    Examples:
      rollout pause worker-2 --reason "disk is being replaced" --until 2d
      rollout pause --all --until 2030-01-07T06:00Z
    """
    # Report a wrong time before the first request.
    parse_future_time(until, wiring.now(), "--until")
    api, nodes = _read_nodes_to_change(settings, node, everything=all)
    # The API server's clock ends the pause.
    now = api.server_time() or wiring.now()
    end = parse_future_time(until, now, "--until")
    until_text = whole_second(end) if end else ""
    new = Pause(wiring.operator(), whole_second(now), reason, until_text)
    names: list[str] = []
    if all:
        before, _ = _change_memory(settings, partial(replace, pause=new))
        if before.pause and not before.pause.is_over(now):
            say(f"replaces: {before.pause}")
        paused = "All nodes"
        end_command = "rollout unpause --all"
    else:
        named = [item.name for item in nodes]
        names = _change_each(named, lambda name: pause_node(api, name, new))
        paused = shortened(names)
        end_command = f"rollout unpause {' '.join(names)}"
    text = f"{paused}: {printable(str(new))}.\nTo end it:\n    {end_command}"
    document = PauseReport(
        all=all, nodes=names, by=new.by, at=new.at, reason=new.reason, until=new.until
    )
    settings.output.show(document, lambda: text, is_prose=True)


@takes("cluster")
def unpause(
    settings: CommandSettings,
    node: list[str] | None = _NODES,
    all: bool = option(
        False, "End the pause set by `rollout pause --all`; nodes paused by name stay paused"
    ),
    unattended: bool = option(
        False, "Let `rollout operate` reboot nodes again after `rollout abort`"
    ),
) -> None:
    """Let rollouts reboot paused nodes again, or let `rollout operate` reboot after an abort.

    Ends only the pauses that you specify. Prints what else prevents the nodes from being rebooted,
    and how to change that.

    \b
    Examples:
      rollout unpause worker-2
      rollout unpause --all
      rollout unpause --unattended
    """
    api, nodes = _read_nodes_to_change(settings, node, everything=all, may_be_none=unattended)
    paused_by_name: list[str] = []
    if not all:
        paused_by_name = [item.name for item in nodes if pause_on(item) is not None]
    others = [item for item in nodes if item.name not in paused_by_name]
    before = NO_MEMORY
    if all or unattended:
        change = partial(_without_pauses, all_nodes=all, unattended=unattended)
        before, _ = _change_memory(settings, change)
    unpaused_nodes = _change_each(paused_by_name, partial(unpause_node, api))
    lines = _unpause_lines(before, unpaused_nodes, others, all_nodes=all, unattended=unattended)
    if all:
        lines += _describe_named_pauses(others, api.server_time())
    if before.aborted is not None and not unattended:
        lines.append(_STILL_STOPPED)
    document = UnpauseReport(
        all=all and before.pause is not None,
        nodes=unpaused_nodes,
        unattended=unattended and before.aborted is not None,
    )
    settings.output.show(document, lambda: "\n".join(lines), is_prose=True)
    not_paused_by_rollout = [item for item in others if pause_on(item) is None]
    by_other_tools = [item.name for item in not_paused_by_rollout if why_paused(item, None)]
    if by_other_tools:
        say(f"still paused, by another tool's annotation: {shortened(by_other_tools)}")


def _change_each(names: Sequence[str], change: Callable[[str], None]) -> list[str]:
    """Leave out Nodes that have been deleted meanwhile."""
    changed: list[str] = []
    for name in names:
        try:
            with_retries(change, name)
        except ApiNotFoundError:
            say(f"{name} was deleted in the meantime")
        except ApiError:
            if changed:
                say(f"these nodes were changed before the error: {shortened(changed)}")
            raise
        else:
            changed.append(name)
    if names and not changed:
        raise ApiNotFoundError("none of these nodes exists any more")
    return changed


def _unpause_lines(
    before: Memory,
    unpaused_nodes: Sequence[str],
    others: Sequence[Node],
    *,
    all_nodes: bool,
    unattended: bool,
) -> list[str]:
    """`unpaused_nodes` were paused by name."""
    lines: list[str] = []
    if unpaused_nodes:
        lines.append(f"No longer paused: {shortened(unpaused_nodes)}.")
    if all_nodes and before.pause is not None:
        lines.append(f"The pause of all nodes has ended. It was: {printable(str(before.pause))}.")
    if unattended and before.aborted is not None:
        lines.append("Unattended passes may reboot nodes again.")
    if others and not all_nodes:
        lines.append(f"Not paused by rollout: {shortened([node.name for node in others])}.")
    if lines:
        return lines
    if all_nodes:
        return ["There is no pause of all nodes."]
    return ["Nothing to unpause."]


def _without_pauses(memory: Memory, *, all_nodes: bool, unattended: bool) -> Memory:
    if all_nodes:
        memory = replace(memory, pause=None)
    if unattended:
        memory = replace(memory, aborted=None)
    return memory


def _describe_named_pauses(nodes: Sequence[Node], now: datetime | None) -> Iterator[str]:
    names: list[str] = []
    for node in nodes:
        pause = pause_on(node)
        if pause is not None and not pause.is_over(now):
            names.append(node.name)
    if names:
        command = f"rollout unpause {' '.join(map(shell_word, names))}"
        yield f"Paused by name: {shortened(names)}. To end these pauses:\n    {command}"


def _read_nodes_to_change(
    settings: CommandSettings,
    names: list[str] | None,
    *,
    everything: bool,
    may_be_none: bool = False,
) -> tuple[ClusterApi, Sequence[Node]]:
    """Return the API and the named nodes, or all if `everything`."""
    hint = "Specify node names, such as worker-2 worker-3, or use --all."
    if names and everything:
        raise UsageError("--all cannot be used with node names", hint=hint)
    if not (names or everything or may_be_none):
        raise UsageError("no nodes specified", hint=hint)
    api = wiring.cluster_api(settings)
    if not (names or everything):
        return api, ()
    nodes = read_nodes(api)
    selection = Selection(nodes=tuple(map(parse_node_name, names or ())))
    selected = selected_names(nodes, nodes, selection)
    return api, [node for node in nodes if node.name in selected]


@takes("cluster")
def hold(
    settings: CommandSettings,
    version: list[str] = argument(
        ...,
        "Versions, as rollout status shows them.",
        "VERSION",
        proven_versions,
        parser=parse_os_version,
    ),
) -> None:
    """Prevent rollouts from rebooting nodes into these versions, until you end the hold.

    Nodes that already run a held version keep it; to roll them back, use `rollout rollback`. If a
    node in flight has a held version staged and its reboot has not been requested yet, the node
    is uncordoned. To end the hold, use `rollout release`.

    \b
    Examples:
      rollout hold 4081.2.1
    """
    versions = tuple(dict.fromkeys(version))
    by = wiring.operator()
    now = wiring.now()

    def with_holds(memory: Memory) -> Memory:
        for held_version in versions:
            memory = with_hold(memory, held_version, by=by, now=now)
        return memory

    _change_memory(settings, with_holds)
    document = HoldReport(versions=versions, by=by, at=whole_second(now))
    end_command = f"rollout release {' '.join(map(shell_word, versions))}"
    effect = "Rollouts do not reboot nodes into held versions."
    text = f"Held: {shortened(versions)}. {effect}\nTo end it:\n    {end_command}"
    settings.output.show(document, lambda: text, is_prose=True)


@takes("cluster")
def release(
    settings: CommandSettings,
    version: list[str] | None = argument(
        None, "Held versions, as rollout status shows them.", "VERSION", held_versions
    ),
    node: list[str] | None = option(
        None, "Clear the failures of this node; repeatable", "NAME", autocompletion=node_names
    ),
    all: bool = option(False, "Clear all recorded failures, and end all holds"),
) -> None:
    """End the hold on a version that was held manually, by a rollback, or because it failed.

    The next rollout includes the nodes that have this version staged. Does not reboot nodes. Does
    not end a pause, with one exception: if the failure history is unreadable, --all resets it and
    also ends the pause of all nodes.

    \b
    Examples:
      rollout release 4081.2.1
      rollout release --node worker-2
    """
    versions = tuple(dict.fromkeys(version or ()))
    nodes = tuple(dict.fromkeys(map(parse_node_name, node or ())))
    names_something = bool(versions or nodes)
    is_exactly_one = names_something != all
    if not is_exactly_one:
        hint = "To see what is held, run: rollout status"
        raise UsageError("specify either versions or nodes, or --all", hint=hint)
    change = partial(without_failures, versions=versions, nodes=nodes, everything=all)
    before, after = _change_memory(settings, change, may_reset=all)
    released_versions = [name for name in before.versions if name not in after.versions]
    cleared_nodes = [name for name in before.nodes if name not in after.nodes]
    changed = {*released_versions, *cleared_nodes}
    unknown = [name for name in (*versions, *nodes) if name not in changed]
    document = ReleaseReport(
        versions=released_versions,
        nodes=cleared_nodes,
        unknown=unknown,
        reset=bool(before.why_unreadable),
    )
    config_map = memory_document(settings.lock.namespace).origin
    settings.output.show(document, lambda: _release_text(document, config_map), is_prose=True)


def _release_text(report: ReleaseReport, config_map: str) -> str:
    lines: list[str] = []
    if report["versions"]:
        lines.append(f"Ended the hold on: {shortened(report['versions'])}.")
    if report["nodes"]:
        lines.append(f"Cleared the failures of: {shortened(report['nodes'])}.")
    if report["unknown"]:
        lines.append(f"No holds or failures to clear for: {shortened(report['unknown'])}.")
    if report["reset"]:
        ended = "All holds and the pause of all nodes, if there were any, have ended."
        lines.append(f"Reset: {config_map}. {ended}")
    return "\n".join(lines or ["Nothing to clear: no holds or failures are stored."])


def _change_memory(
    settings: CommandSettings, change: Callable[[Memory], Memory], *, may_reset: bool = False
) -> tuple[Memory, Memory]:
    """Return the stored memory before and after the change.

    An unreadable memory raises `BlockedError`, or becomes empty if it `may_reset`.
    """
    api = wiring.cluster_api(settings)
    namespace = settings.lock.namespace
    before = with_retries(read_stored_memory, api, namespace).content
    if not may_reset:
        require_readable_memory(before)
    after = with_retries(
        lambda: change_memory(api, namespace, change, replace_unreadable=may_reset)
    )
    return before, after


_PROVEN_VERSION = argument(
    "",
    "Version to export; default: the version that a node was most recently rebooted into.",
    "VERSION",
    proven_versions,
)
_EVIDENCE_FILE = option(
    None,
    "File to write; if it is a directory or ends in /, write VERSION-CLUSTER_ID.json to it;"
    " default: stdout",
    "FILE",
)
_SIGN_KEY = option(
    None, "Sign the file with this SSH key, and write the signature to FILE.sig", "FILE"
)


@takes("cluster", formats=(OutputFormat.JSON,))
def evidence(
    settings: CommandSettings,
    version: str = _PROVEN_VERSION,
    out: str | None = _EVIDENCE_FILE,
    sign_key: Path | None = _SIGN_KEY,
) -> None:
    """Export proof that a version works, for other clusters to require.

    Counts the nodes that are Ready and run the version, and whose reboot into it was verified. Does
    not connect to the hosts.

    \b
    Examples:
      rollout evidence --set cluster.name=staging --out evidence/ \\
        --sign-key ~/.ssh/staging
    In the other cluster:
      rollout operate --require-evidence configmap --config cluster.toml
    """
    if sign_key is not None and out is None:
        hint = "The signature is written beside it, as FILE.sig."
        raise UsageError("--sign-key needs --out FILE", hint=hint)
    is_folder = False
    # Report an unwritable place before the first request.
    if out is not None:
        # `Path.is_dir` may raise.
        is_folder = names_folder(out) or os.path.isdir(out)  # noqa: PTH112
        check_place = check_output_folder if is_folder else check_output_file
        check_place(Path(out))
    api = wiring.cluster_api(settings)
    nodes = read_nodes(api)
    memory = with_retries(read_memory, api, settings.lock.namespace)
    require_readable_memory(memory)
    cluster = ProvingCluster(with_retries(read_identity, api).uid, settings.cluster.name)
    document = make_evidence(
        version, nodes, memory, cluster=cluster, now=api.server_time() or wiring.now()
    )
    content = json_document(document)
    if out is None:
        show_document(content)
        return
    signature = sign(content, sign_key) if sign_key else None
    file = _make_path_in(Path(out), document) if is_folder else Path(out)
    write_whole(file, content)
    if signature is not None:
        write_whole(file.with_name(f"{file.name}.sig"), signature)
    failed = f", {len(document.failed)} failed" if document.failed else ""
    proven = f"{counted(len(document.nodes), 'node')}{failed}, verified for {document.hours:g} h"
    say(f"{document.version}: {proven}. Written: {file}")


def _make_path_in(folder: Path, document: Evidence) -> Path:
    make_folder(folder)
    # Clusters differ in this part of the UID.
    cluster_id, _, _ = document.cluster.uid.partition("-")
    return folder / f"{document.version}-{cluster_id}.json"
