"""How hosts are reached, and the operator's own playbooks: of this process alone, never taken from the cluster."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from rollout.cli.options import values
from rollout.cli.options.declaration import SSH, Flag
from rollout.model.host import DEFAULT_SSH_PORT, DEFAULT_SSH_USER
from rollout.model.quantity import Duration


class HostKeys(StrEnum):
    """What to do with host keys."""

    STRICT = "strict"
    ACCEPT_NEW = "accept-new"
    OFF = "off"


class Executor(StrEnum):
    """What carries commands to the hosts."""

    SSH = "ssh"
    ANSIBLE = "ansible"


@dataclass(frozen=True, slots=True)
class SshOptions:
    """How the hosts are reached."""

    executor: Annotated[
        Executor,
        Flag(SSH, "How to run commands on hosts: rollout's own SSH, or Ansible with your inventory's settings."),
    ] = Executor.SSH
    inventory: Annotated[
        Path | None,
        Flag(
            SSH,
            "Inventory of the hosts, as Ansible reads it. Default: the Nodes' own addresses.",
            "FILE",
            short="-i",
        ),
    ] = None
    ssh_user: Annotated[
        str | None, Flag(SSH, f"User. Default: the SSH configuration's, else {DEFAULT_SSH_USER}.", "USER")
    ] = None
    ssh_port: Annotated[
        int | None,
        Flag(SSH, f"Port. Default: the SSH configuration's, else {DEFAULT_SSH_PORT}.", "PORT", least=1, most=65535),
    ] = None
    ssh_key: Annotated[
        Path | None, Flag(SSH, "Private key. Default: the agent's keys, then the usual files in ~/.ssh.", "FILE")
    ] = None
    known_hosts: Annotated[
        Path | None, Flag(SSH, "Host keys to trust. Default: the SSH configuration's, else ~/.ssh/known_hosts.", "FILE")
    ] = None
    ssh_config: Annotated[
        Path | None,
        Flag(SSH, "OpenSSH client configuration to use, or none. Default: those of ssh, ~/.ssh/config first.", "FILE"),
    ] = None
    host_key_checking: Annotated[
        HostKeys, Flag(SSH, "strict: only known keys. accept-new: trust and record a first one. off: trust anything.")
    ] = HostKeys.STRICT
    probe_timeout: Annotated[
        Duration, Flag(SSH, "How long one host may take to answer.", "DURATION", read=values.some_time)
    ] = Duration(60)
    probe_concurrency: Annotated[int, Flag(SSH, "How many hosts to ask at once.", "N", least=1)] = 50


@dataclass(frozen=True, slots=True)
class PlaybookOptions:
    """Playbooks around each node's reboot."""

    pre_reboot_playbook: Annotated[
        Path | None,
        Flag(SSH, "Ansible playbook to run on each drained node; if it fails, the node is given back.", "FILE"),
    ] = None
    post_reboot_playbook: Annotated[
        Path | None,
        Flag(SSH, "The same on each node that is Ready again; if it fails, the node stays cordoned.", "FILE"),
    ] = None
