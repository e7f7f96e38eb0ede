"""How a host is rebooted, where `systemctl reboot` is not the way.

The command is this machine's business: it comes from a flag, the environment or rollout.toml, and stands neither in a
plan nor on the cluster, where others could write. A plan, and a rollout under way, hold a digest of it, so that they
are gone on with by the same command or not at all.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Annotated

from rollout.cli.options import values
from rollout.cli.options.declaration import SSH, Flag
from rollout.errors import UsageError
from rollout.gather.hosts.probe_command import REBOOT_COMMAND
from rollout.model.policy import Policy

_DIGITS = 16


@dataclass(frozen=True, slots=True)
class RebootOptions:
    """The operator's own command, run by the SSH user's login shell; empty for `systemctl reboot`."""

    reboot_command: Annotated[
        str,
        Flag(
            SSH,
            "Command that reboots a host, run as the SSH user. Default: systemctl reboot, through sudo -n.",
            "COMMAND",
            read=values.one_line,
        ),
    ] = ""
    wall_message: Annotated[
        str,
        Flag(
            SSH,
            "What --wall tells logged-in users, instead of that the host will be rebooted for an update.",
            "TEXT",
            read=values.one_line,
        ),
    ] = ""

    @property
    def wall_command(self) -> str:
        """What a host is asked to run for its users to be told."""
        from rollout.gather.hosts.users import WALL_MESSAGE, wall_command

        return wall_command(self.wall_message or WALL_MESSAGE)

    @property
    def command(self) -> str:
        """What a host is asked to run."""
        return self.reboot_command or REBOOT_COMMAND

    @property
    def digest(self) -> str:
        """What stands for the operator's own command in a plan; empty where there is none."""
        own = self.command != REBOOT_COMMAND
        return hashlib.sha256(self.command.encode()).hexdigest()[:_DIGITS] if own else ""

    def added_to(self, policy: Policy) -> Policy:
        """The rules with it."""
        courtesy = replace(policy.courtesy, wall=policy.courtesy.wall or bool(self.wall_message))
        return replace(policy, reboot_command=self.digest, courtesy=courtesy)

    def refuse_another(self, policy: Policy) -> None:
        """`UsageError` where these rules were made for another command."""
        if policy.reboot_command == self.digest:
            return
        if policy.reboot_command and self.digest:
            message = "it was started or planned with another --reboot-command"
        elif policy.reboot_command:
            message = "it was started or planned with a --reboot-command, and none is given"
        else:
            message = "it was started or planned without a --reboot-command, and one is given"
        raise UsageError(
            message, hint="Pass the same one: the command itself is stored neither on the cluster nor in the plan."
        )
