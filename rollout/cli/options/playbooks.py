"""Options that name the operator's own playbooks: of this process alone, never saved, never taken from the cluster."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rollout.cli.options.general import SSH


@dataclass(frozen=True, slots=True)
class PlaybookOptions:
    """Playbooks around each node's reboot."""

    pre_reboot_playbook: Annotated[
        Path | None,
        typer.Option(
            "--pre-reboot-playbook",
            envvar="ROLLOUT_PRE_REBOOT_PLAYBOOK",
            show_envvar=False,
            metavar="FILE",
            help="Ansible playbook to run on each drained node; where it fails, the node is given back.",
            rich_help_panel=SSH,
        ),
    ] = None
    post_reboot_playbook: Annotated[
        Path | None,
        typer.Option(
            "--post-reboot-playbook",
            envvar="ROLLOUT_POST_REBOOT_PLAYBOOK",
            show_envvar=False,
            metavar="FILE",
            help="The same on each node that is Ready again; where it fails, the node stays cordoned.",
            rich_help_panel=SSH,
        ),
    ] = None
