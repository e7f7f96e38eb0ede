"""`rollout inventory` and `rollout known-hosts`: the Nodes, for Ansible and for ssh."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rollout.cli import consent, wiring
from rollout.cli.flags import YES, option, takes
from rollout.cli.settings.reading import SELECTION, Given
from rollout.cli.settings.rules import policy_of, selection_of
from rollout.cli.settings.schema import Output
from rollout.cli.terminal import say, show, show_bytes, shown_meanwhile
from rollout.errors import ExitCode
from rollout.model.plan import FORMAT_VERSION
from rollout.model.text import counted

if TYPE_CHECKING:
    from rollout.adapters.ssh.host_keys import ScannedHost
    from rollout.report.host_keys import HostKeyRow


@takes("cluster", *SELECTION, "ssh")
def inventory(
    settings: Given,
    list: bool = option(False, "Print every host and group: the default."),  # noqa: A002, ARG001 - how Ansible asks for it
) -> None:
    """Print the Nodes as an Ansible inventory, in JSON: groups by role, zone, version, and need of a reboot.

    \b
    Examples:
      rollout inventory --list
      ansible-inventory -i inventory/ --graph
    """
    from rollout.cli.stages.gather import ask_hosts, read_nodes
    from rollout.cli.stages.session import connect
    from rollout.gather.inventory.nodes import Connection, inventory_document
    from rollout.model.json_text import json_document

    session = connect(settings, policy_of(settings))
    nodes = read_nodes(session)
    targets = ask_hosts(session, nodes)
    chosen = targets.among(nodes)
    ssh = settings.ssh
    connection = Connection(_absolute(ssh.key), _absolute(ssh.known_hosts), _absolute(ssh.config))
    shown = inventory_document(chosen, targets.hosts, targets.observations, connection)
    show_bytes(json_document(shown))


def _absolute(file: Path | None) -> str:
    """As OpenSSH takes it from any folder; `none` is no file."""
    return str(file if str(file) == "none" else file.absolute()) if file else ""


_MODE = 0o644
_FINGERPRINTS = "Text with the hosts' fingerprints, as their consoles print them; or a folder with a file for each Node"


@takes("cluster", *SELECTION, "ssh")
def known_hosts(
    settings: Given,
    out: Path | None = option(None, "The file to write; default: that of --known-hosts, else stdout", "FILE"),
    fingerprints: Path | None = option(None, _FINGERPRINTS, "FILE"),
    yes: bool = YES,
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
    from rollout.cli.stages.gather import choose, find_hosts, with_patience
    from rollout.gather.cluster.snapshot import read_nodes

    ssh, as_json = settings.ssh, settings.output.as_json
    file = out or ssh.known_hosts
    check_target(file)
    before = host_keys.read_whole(file)
    api = wiring.cluster_api(settings.cluster)
    nodes = with_patience(read_nodes, api)
    # none is logged in to, so that no key and no known_hosts is needed
    hosts = find_hosts(nodes, choose(nodes, api, selection_of(settings))[1], ssh)
    listed = host_keys.read_fingerprints(fingerprints, hosts) if fingerprints else {}
    with shown_meanwhile("asking hosts for their keys"):
        scanned = host_keys.scan(hosts, file, listed, timeout=ssh.probe_timeout, concurrency=ssh.probe_concurrency)
    _show(scanned, settings.output, is_data=file is not None)
    taken = _taken(scanned, yes=yes, as_json=as_json)
    _write(file, host_keys.written(before, taken), len(taken), as_json=as_json)
    left = [entry for entry in scanned if entry not in taken and entry.standing is not host_keys.KeyState.KNOWN]
    raise typer.Exit(ExitCode.PARTIAL if left else ExitCode.OK)


def _show(scanned: "Sequence[ScannedHost]", output: Output, *, is_data: bool) -> None:
    """Show what was seen: as data, or, where the file itself is the data, beside it."""
    from rollout.report.host_keys import HostKeysReport, host_keys_text

    rows = tuple(map(_row, scanned))
    if output.as_json or is_data:
        output.show(HostKeysReport(FORMAT_VERSION, rows), lambda: host_keys_text(rows, output.width))
    else:
        sys.stderr.write(f"{host_keys_text(rows, output.width)}\n")


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
    """Return what is confirmed, and what is new where the operator says yes; `DeclinedError` where nobody does."""
    from rollout.adapters.ssh.host_keys import KeyState

    unconfirmed = [entry for entry in scanned if entry.standing is KeyState.NEW and not entry.confirmed_by]
    if unconfirmed and not yes:
        keys = f"{counted(len(unconfirmed), 'key')} unconfirmed"
        hint = f"{keys}: give --fingerprints; or compare them, and give --yes."
        consent.refuse_if_nobody_can_be_asked(given=False, as_json=as_json, hint=hint)
        consent.ask(f"Trust {keys}")
    return [entry for entry in scanned if entry.is_taken or entry in unconfirmed]


def _write(file: Path | None, content: str, number: int, *, as_json: bool) -> None:
    from rollout.cli.files import write_whole

    if file is not None:
        if number:
            write_whole(file, content.encode(errors="surrogateescape"), mode=_MODE)
        say(f"{counted(number, 'key')} written to {file}" if number else f"{file} stays as it is")
    elif not as_json:
        show(content.rstrip("\n"))
