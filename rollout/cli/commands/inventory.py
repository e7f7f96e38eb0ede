"""`rollout inventory`."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.flags import CLUSTER, HOSTS, SELECTION, takes
from rollout.cli.settings.reading import Given
from rollout.cli.settings.rules import detected_by, probe_of, selection_of
from rollout.cli.settings.schema import Ssh
from rollout.errors import InputError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from rollout.gather.inventory.nodes import Connection

ListOption = Annotated[
    bool,
    typer.Option("--list", show_envvar=False, help="Print every host and group; the default."),
]
HostOption = Annotated[
    str | None,
    typer.Option("--host", show_envvar=False, metavar="NAME", help="Print the variables of this host only."),
]


@takes(*CLUSTER, *SELECTION, *HOSTS)
def inventory(
    settings: Given,
    list: ListOption = False,  # noqa: A002 - the flag's name is Ansible's
    host: HostOption = None,
) -> None:
    """Print the Nodes as an Ansible inventory, in JSON: groups by role, zone, version, and need of a reboot.

    \b
    Examples:
      rollout inventory --list
      rollout inventory --host worker-1
      ansible-inventory -i inventory/ --graph
    """
    from rollout.cli.stages.gather import ask_hosts, connect, read_nodes
    from rollout.cli.terminal import show_bytes
    from rollout.gather.inventory.nodes import host_variables, inventory_document
    from rollout.model.json_text import json_document
    from rollout.planning.eligibility.candidates import excluded_by_name

    if list and host:
        raise UsageError("--list and --host cannot be used together", hint="Drop one of them.")
    selection = selection_of(settings)
    narrowed = replace(selection, nodes=(host,)) if host else selection
    connections = connect(settings, narrowed)
    nodes = read_nodes(connections)
    targets = ask_hosts(nodes, connections, narrowed, settings.ssh, probe_of(settings, detected_by(settings)))
    chosen = [node for node in nodes if node.name in targets.selected and not excluded_by_name(node.name, narrowed)]
    reached = _connection(settings.ssh)
    if host and not chosen:
        raise InputError(f"{host} is left out by --exclude", hint="Drop --host or --exclude.")
    if host:
        shown = host_variables(chosen[0], targets.hosts.get(host), targets.observations.get(host), reached)
    else:
        shown = inventory_document(chosen, targets.hosts, targets.observations, reached)
    show_bytes(json_document(shown))


def _connection(ssh: Ssh) -> "Connection":
    from rollout.gather.inventory.nodes import Connection

    return Connection(
        key_file=str(ssh.key.absolute()) if ssh.key else "",
        known_hosts=str(ssh.known_hosts.absolute()) if ssh.known_hosts else "",
        ssh_config=_configuration(ssh.config),
    )


def _configuration(file: "Path | None") -> str:
    """As OpenSSH's own -F takes it; `none` is no file."""
    if file is None or str(file) == "none":
        return "none" if file else ""
    return str(file.absolute())
