"""`rollout inventory` and `rollout known-hosts`: the Nodes, for Ansible and for ssh."""

from pathlib import Path

import typer

from rollout.cli.flags import YES, option, takes
from rollout.cli.settings.reading import SELECTION, Given
from rollout.cli.settings.rules import policy_of
from rollout.cli.stages.gather import ask_hosts, read_nodes
from rollout.cli.stages.session import connect
from rollout.cli.terminal import show_document
from rollout.gather.inventory import Connection, inventory_document


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
    session = connect(settings, policy_of(settings))
    targets, ssh = ask_hosts(session, nodes := read_nodes(session.api)), settings.ssh
    connection = Connection(_absolute(ssh.key), _absolute(ssh.known_hosts), _absolute(ssh.config))
    shown = inventory_document(targets.among(nodes), targets.hosts, targets.observations, connection)
    show_document(shown)


def _absolute(file: Path | None) -> str:
    """As OpenSSH takes it from any folder; `none` is no file."""
    return str(file if str(file) == "none" else file.absolute()) if file else ""


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
    from rollout.cli.stages.host_keys import scan

    raise typer.Exit(scan(settings, out, fingerprints, yes=yes))
