"""Host keys, scanned, shown, confirmed and written."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rollout.adapters.ssh import host_keys
from rollout.adapters.ssh.host_keys import KeyState, ScannedHost
from rollout.adapters.ssh.known_hosts import name_on_file, text_of
from rollout.cli import consent, wiring
from rollout.cli.files import check_target, write_whole
from rollout.cli.settings.reading import Given
from rollout.cli.settings.rules import selection_of
from rollout.cli.stages.gather import choose, find_hosts, read_nodes
from rollout.cli.terminal import say, show, shown_meanwhile
from rollout.errors import ExitCode
from rollout.model.plan import FORMAT_VERSION
from rollout.model.text import counted
from rollout.report.host_keys import HostKeyRow, HostKeysReport, host_keys_text

_MODE = 0o644


def scan(settings: Given, out: Path | None, fingerprints: Path | None, *, yes: bool) -> ExitCode:
    """Scan the hosts of the Nodes that are meant, and write what is confirmed; none is logged in to."""
    ssh, output = settings.ssh, settings.output
    file = out or ssh.known_hosts
    check_target(file)
    before, api = text_of(file) if file else "", wiring.cluster_api(settings)
    nodes = read_nodes(api)
    hosts = find_hosts(nodes, choose(nodes, api, selection_of(settings))[1], ssh)
    listed = host_keys.read_fingerprints(fingerprints, hosts) if fingerprints else {}
    with shown_meanwhile("asking hosts for their keys"):
        scanned = host_keys.scan(hosts, file, listed, timeout=ssh.probe_timeout, concurrency=ssh.probe_concurrency)
    rows = tuple(map(_row, scanned))
    if output.as_json or file:
        output.show(HostKeysReport(FORMAT_VERSION, rows), lambda: host_keys_text(rows, output.width))
    else:
        # the file itself is the data
        sys.stderr.write(f"{host_keys_text(rows, output.width)}\n")
    taken = _taken(scanned, yes=yes, as_json=output.as_json)
    content = host_keys.written(before, taken)
    if file and taken:
        write_whole(file, content.encode(errors="surrogateescape"), mode=_MODE)
    if file:
        say(f"{counted(len(taken), 'key')} written to {file}" if taken else f"{file} stays as it is")
    elif not output.as_json:
        show(content.rstrip("\n"))
    left = [entry for entry in scanned if entry not in taken and entry.standing is not KeyState.KNOWN]
    return ExitCode.PARTIAL if left else ExitCode.OK


def _row(entry: ScannedHost) -> HostKeyRow:
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


def _taken(scanned: Sequence[ScannedHost], *, yes: bool, as_json: bool) -> list[ScannedHost]:
    """Return what is confirmed, and what is new where the operator says yes; `DeclinedError` where nobody does."""
    unconfirmed = [entry for entry in scanned if entry.standing is KeyState.NEW and not entry.confirmed_by]
    if unconfirmed and not yes:
        keys = f"{counted(len(unconfirmed), 'key')} unconfirmed"
        hint = f"{keys}: give --fingerprints; or compare them, and give --yes."
        consent.refuse_if_nobody_can_be_asked(given=False, as_json=as_json, hint=hint)
        consent.ask(f"Trust {keys}")
    return [entry for entry in scanned if entry.is_taken or entry in unconfirmed]
