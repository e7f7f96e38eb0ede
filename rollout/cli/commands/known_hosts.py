"""`rollout known-hosts`."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.options.cluster import ClusterOptions
from rollout.cli.options.declaration import OWN, Flag
from rollout.cli.options.general import GeneralOptions
from rollout.cli.options.nodes import SelectionOptions
from rollout.cli.options.run import YesOption
from rollout.cli.options.ssh import SshOptions
from rollout.errors import ExitCode

if TYPE_CHECKING:
    from rollout.adapters.ssh.host_keys import ScannedHost
    from rollout.model.host import Host
    from rollout.model.policy import Selection
    from rollout.report.host_keys import HostKeyRow

_MODE = 0o644

OutOption = Annotated[
    Path | None, Flag(OWN, "The file to write. Default: that of --known-hosts, else standard output.", "FILE")
]
FingerprintsOption = Annotated[
    Path | None,
    Flag(
        OWN,
        "Text with the hosts' fingerprints, as their consoles print them; or a folder with a file for each Node.",
        "FILE",
    ),
]


def known_hosts(
    cluster: ClusterOptions,
    selection: SelectionOptions,
    ssh: SshOptions,
    general: GeneralOptions,
    out: OutOption = None,
    fingerprints: FingerprintsOption = None,
    yes: YesOption = False,
) -> None:
    """Scan the Nodes' host keys into a known_hosts file: shown, confirmed, written.

    A scan alone proves nothing. Keys that a fingerprint confirms are written; others after a yes,
    or with --yes. A changed key is written only where it is confirmed. Ends with 4 where a host is left without.

    \b
    Examples:
      rollout known-hosts --out known_hosts
      rollout known-hosts --out known_hosts --fingerprints consoles/
    """
    from rollout.adapters.ssh import host_keys
    from rollout.cli.files import check_target
    from rollout.cli.open_files import asked_at_once
    from rollout.cli.terminal import shown_meanwhile

    file = out or ssh.known_hosts
    check_target(file)
    before = host_keys.read_whole(file)
    hosts = _hosts(cluster, selection.selection, ssh)
    listed = host_keys.read_fingerprints(fingerprints, hosts) if fingerprints else {}
    at_once = asked_at_once(ssh.probe_concurrency, len(hosts))
    with shown_meanwhile("asking hosts for their keys"):
        scanned = host_keys.scan(hosts, file, listed, timeout=ssh.probe_timeout, concurrency=at_once)
    _show(scanned, general, is_data=file is not None)
    taken = _taken(scanned, yes=yes, as_json=general.as_json)
    _write(file, host_keys.written(before, taken), len(taken), as_json=general.as_json)
    left = [entry for entry in scanned if entry not in taken and entry.standing is not host_keys.Standing.KNOWN]
    raise typer.Exit(ExitCode.PARTIAL if left else ExitCode.OK)


def _hosts(cluster: ClusterOptions, selection: "Selection", ssh: SshOptions) -> "Mapping[str, Host]":
    """The hosts of the chosen Nodes; none is logged in to, so that no key and no known_hosts is needed."""
    from rollout.cli import wiring
    from rollout.cli.stages.gather import find_hosts, with_patience
    from rollout.gather.cluster.snapshot import read_nodes
    from rollout.planning.selector import parse_selector

    parse_selector(selection.selector)
    api = wiring.cluster_api(cluster)
    nodes = with_patience(lambda: read_nodes(api))
    return find_hosts(nodes, api, selection, ssh)[1]


def _show(scanned: "Sequence[ScannedHost]", general: GeneralOptions, *, is_data: bool) -> None:
    """What was seen: as data, or, where the file itself is the data, beside it."""
    from rollout.cli.terminal import show, show_bytes
    from rollout.model.json_text import json_document
    from rollout.report.host_keys import host_keys_text

    rows = [_row(entry) for entry in scanned]
    if general.as_json:
        show_bytes(json_document(rows))
    elif is_data:
        show(host_keys_text(rows, general.width))
    else:
        sys.stderr.write(f"{host_keys_text(rows, general.width)}\n")


def _row(entry: "ScannedHost") -> "HostKeyRow":
    from rollout.adapters.ssh.known_hosts import name_on_file
    from rollout.report.host_keys import HostKeyRow

    return HostKeyRow(
        node=entry.node,
        host=name_on_file(entry.host),
        type=entry.key.type if entry.key else "",
        fingerprint=entry.key.fingerprint if entry.key else "",
        standing=entry.standing,
        confirmed_by=entry.confirmed_by,
        before=tuple(key.fingerprint for key in entry.before),
        error=entry.error,
    )


def _taken(scanned: "Sequence[ScannedHost]", *, yes: bool, as_json: bool) -> "list[ScannedHost]":
    """What is confirmed, and what is new where the operator says yes; `DeclinedError` where nobody does."""
    from rollout.adapters.ssh.host_keys import Standing
    from rollout.cli import consent
    from rollout.errors import DeclinedError
    from rollout.model.text import counted

    unconfirmed = [entry for entry in scanned if entry.standing is Standing.NEW and not entry.confirmed_by]
    if unconfirmed and not yes:
        keys = counted(len(unconfirmed), "key")
        if as_json or not sys.stdin.isatty():
            raise DeclinedError(
                f"{keys} unconfirmed, and no terminal to ask at: nothing was written",
                hint="Give --fingerprints; or compare them, and give --yes.",
            )
        consent.ask(f"Trust {keys} unconfirmed")
    return [entry for entry in scanned if entry.is_taken or entry in unconfirmed]


def _write(file: Path | None, content: str, number: int, *, as_json: bool) -> None:
    from rollout.cli.files import write_whole
    from rollout.cli.terminal import say, show
    from rollout.model.text import counted

    if file is not None:
        if number:
            write_whole(file, content.encode(errors="surrogateescape"), mode=_MODE)
        say(f"{counted(number, 'key')} written to {file}" if number else f"{file} stays as it is")
    elif not as_json:
        show(content.rstrip("\n"))
