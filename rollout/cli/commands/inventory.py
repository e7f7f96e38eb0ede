import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rollout.adapters.local_files import check_output_file, output_file, write_whole
from rollout.cli import consent, wiring
from rollout.cli.flags import DOCUMENT, NODE_ARGUMENTS, YES, takes
from rollout.cli.options import option
from rollout.cli.settings.reading import SELECTION, CommandSettings
from rollout.cli.settings.rules import selection_of
from rollout.cli.settings.schema import OutputFormat, SshSettings
from rollout.cli.stages.cluster import connect, read_nodes
from rollout.cli.stages.hosts import ask_hosts, find_hosts
from rollout.cli.stages.rollout_spec import RolloutSpec, new_rollout_spec
from rollout.cli.stages.selection import select
from rollout.cli.terminal import error_console, say, show, show_document, show_progress
from rollout.errors import ExitCode
from rollout.gather.inventory import SshOptions, inventory_document
from rollout.gather.updates import CheckOutcome, CheckResult, check_hosts
from rollout.model.host import Host, KeyState
from rollout.model.node_kind import why_unsupported
from rollout.model.plan import FORMAT_VERSION
from rollout.model.policy import Policy
from rollout.model.text import counted, grouped, printable, shortened
from rollout.report.document_types import CheckReport
from rollout.report.host_keys import HostKeyRow, HostKeysReport, host_keys_text

if TYPE_CHECKING:
    from rollout.adapters.ssh.host_keys import ScannedHost

_READABLE_BY_ALL = 0o644
_MOST_NAMES = 5


@takes("cluster", *SELECTION, "ssh", formats=DOCUMENT)
def inventory(
    settings: CommandSettings,
    list: bool = option(False, "Print every host and group (default)"),  # noqa: ARG001 - Ansible's
) -> None:
    """Print the Nodes as an Ansible inventory.

    Groups the Nodes by role, zone and version, and by whether they need a reboot or are cordoned.

    \b
    Examples:
      rollout inventory --list
      ansible-inventory -i inventory/ --graph
    """
    spec = new_rollout_spec(settings)
    connections = connect(settings)
    nodes = read_nodes(connections.api)
    targets = ask_hosts(connections, spec, nodes)
    ssh = settings.ssh
    connection = SshOptions(_absolute(ssh.key), _absolute(ssh.known_hosts), _absolute(ssh.config))
    supported = [node for node in targets.among(nodes) if not why_unsupported(node)]
    document = inventory_document(supported, targets.hosts, targets.observations, connection)
    show_document(document, as_yaml=settings.output.format is OutputFormat.YAML)


def _absolute(file: Path | None) -> str:
    if file is None:
        return ""
    # OpenSSH takes `none` for no file.
    return "none" if str(file) == "none" else str(file.absolute())


_OUT = "File to write; default: --known-hosts if set, else stdout"
_FINGERPRINTS = (
    "File with the fingerprints that the hosts print to their consoles, or a directory with one"
    " file per node"
)


@takes("cluster", *SELECTION, "ssh", arguments=NODE_ARGUMENTS)
def known_hosts(
    settings: CommandSettings,
    out: Path | None = option(None, _OUT, "FILE", parser=output_file),
    fingerprints: Path | None = option(None, _FINGERPRINTS, "FILE"),
    yes: bool = YES,
) -> None:
    """Scan the nodes for SSH host keys, and add them to a known_hosts file after confirmation.

    A scan alone does not prove that a key is genuine. Writes keys that match a fingerprint, and
    other new keys if you confirm them or use --yes. Writes a changed key only if it matches a
    fingerprint. Exits with 4 if a host has no trusted key.

    \b
    Examples:
      rollout known-hosts --out known_hosts
      rollout known-hosts --out known_hosts --fingerprints consoles/
    """
    from rollout.adapters.ssh.host_keys import with_keys
    from rollout.adapters.ssh.known_hosts import read_known_hosts_text

    ssh = settings.ssh
    output = settings.output
    file = out or ssh.known_hosts
    check_output_file(file)
    old_content = read_known_hosts_text(file) if file else ""
    api = wiring.cluster_api(settings)
    nodes = read_nodes(api)
    selected = select(nodes, api, selection_of(settings))
    hosts = find_hosts(nodes, selected.names, ssh)
    scanned = _scan(hosts, file, fingerprints, ssh)
    rows = tuple(_key_row(host) for host in scanned)
    text = partial(host_keys_text, rows, output.width)
    if output.as_json or file:
        output.show(HostKeysReport(FORMAT_VERSION, rows), text)
    else:
        # Standard output is for the known_hosts file.
        sys.stderr.write(f"{text()}\n")
    trusted = _confirm_trusted(scanned, yes=yes, as_json=output.as_json)
    new_content = with_keys(old_content, trusted)
    if file:
        _write_keys(file, new_content, len(trusted))
    elif not output.as_json:
        show(new_content.rstrip("\n"))
    unknown = [host for host in scanned if host.standing is not KeyState.KNOWN]
    has_untrusted = any(host not in trusted for host in unknown)
    raise typer.Exit(ExitCode.PARTIAL if has_untrusted else ExitCode.OK)


def _scan(
    hosts: Mapping[str, Host], file: Path | None, fingerprints: Path | None, ssh: SshSettings
) -> Sequence["ScannedHost"]:
    from rollout.adapters.ssh import host_keys

    known_fingerprints: host_keys.Fingerprints = {}
    if fingerprints:
        known_fingerprints = host_keys.read_fingerprints(fingerprints, hosts)
    with show_progress("asking hosts for their keys"):
        return host_keys.scan(
            hosts,
            file,
            known_fingerprints,
            timeout=ssh.probe_timeout,
            concurrency=ssh.probe_concurrency,
        )


def _write_keys(file: Path, content: str, new_count: int) -> None:
    if not new_count:
        say(f"{file} is unchanged")
        return
    write_whole(file, content.encode(errors="surrogateescape"), mode=_READABLE_BY_ALL)
    say(f"{counted(new_count, 'key')} written to {file}")


def _key_row(scanned: "ScannedHost") -> HostKeyRow:
    from rollout.adapters.ssh.known_hosts import name_on_file

    return HostKeyRow(
        node=scanned.node,
        host=name_on_file(scanned.host),
        type=scanned.key.type if scanned.key else "",
        fingerprint=scanned.key.fingerprint if scanned.key else "",
        standing=scanned.standing,
        confirmed_by=scanned.confirmed_by,
        before=tuple(key.fingerprint for key in scanned.before),
        error=scanned.error,
    )


def _confirm_trusted(
    scanned: "Sequence[ScannedHost]", *, yes: bool, as_json: bool
) -> "list[ScannedHost]":
    new_hosts = [host for host in scanned if host.standing is KeyState.NEW]
    unconfirmed = [host for host in new_hosts if not host.confirmed_by]
    if unconfirmed and not yes:
        keys = counted(len(unconfirmed), "unconfirmed key")
        hint = f"{keys}: use --fingerprints, or compare them yourself and use --yes."
        consent.refuse_without_terminal(as_json=as_json, hint=hint)
        consent.ask(f"Trust {keys}")
    return [host for host in scanned if host.is_confirmed or host in unconfirmed]


@takes("cluster", *SELECTION, "ssh", arguments=NODE_ARGUMENTS)
def check_update(settings: CommandSettings) -> None:
    """Make the selected hosts check for an update now.

    Skips hosts that have already staged an update or are downloading one. If a host finds an
    update, the host downloads it; once it is staged, `rollout status` shows it. Exits with 4 if a
    host could not be reached.

    \b
    Examples:
      rollout check-update -l pool=web
      rollout check-update --node worker-1
    """
    from rollout.report.console import host_progress

    connections = connect(settings)
    nodes = read_nodes(connections.api)
    spec = RolloutSpec(settings, selection_of(settings), Policy())
    targets = ask_hosts(connections, spec, nodes)
    concurrency = settings.ssh.probe_concurrency
    names = tuple(node.name for node in targets.among(nodes) if not why_unsupported(node))
    result_by_node: dict[str, CheckResult] = {}
    with host_progress(error_console(), len(names)) as advance:
        checks = check_hosts(
            names, targets.observations, connections.shell, concurrency=concurrency
        )
        for result in checks:
            advance()
            result_by_node[result.node] = result
    results = [result_by_node[name] for name in names]
    document = CheckReport(format_version=FORMAT_VERSION, hosts=results)
    settings.output.show(document, lambda: _check_results_text(results), is_prose=True)
    if not all(result.succeeded for result in results):
        raise typer.Exit(ExitCode.PARTIAL)


def _check_results_text(results: list[CheckResult]) -> str:
    outcomes = list(CheckOutcome)
    in_order = sorted(results, key=lambda result: outcomes.index(result.outcome))
    numbers = Counter(result.outcome for result in in_order)
    counts = ", ".join(f"{number} {outcome}" for outcome, number in numbers.items())
    lines = [f"{counted(len(results), 'host')}: {counts or 'nothing to do'}."]
    names_by_result = grouped(
        ((result.outcome, result.version, result.message), result.node) for result in in_order
    )
    for (outcome, version, message), names in names_by_result.items():
        shortened_names = shortened(names, _MOST_NAMES)
        parts = [f"  {outcome}", printable(version), shortened_names, printable(message)]
        lines.append(": ".join(part for part in parts if part))
    return "\n".join(lines)
