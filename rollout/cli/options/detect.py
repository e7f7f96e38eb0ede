"""The operator's own command that tells whether a host needs a reboot.

It is this machine's business, as that of the reboot is: it stands in no plan and nowhere on the cluster, which hold a
digest of it.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Annotated

from rollout.cli.options import values
from rollout.cli.options.declaration import SSH, Flag
from rollout.cli.terminal import say
from rollout.errors import UsageError
from rollout.gather.hosts.probe_command import Probe
from rollout.model.detection import Source
from rollout.model.policy import Policy

_DIGITS = 16


@dataclass(frozen=True, slots=True)
class DetectCommandOptions:
    """The operator's own command, run by the SSH user's login shell; empty where there is none."""

    detect_command: Annotated[
        str,
        Flag(
            SSH,
            "Command that tells, by exit status 0, that its host needs a reboot; run as the SSH user, 15 s at most.",
            "COMMAND",
            read=values.one_line,
        ),
    ] = ""

    @property
    def digest(self) -> str:
        """What stands for it in a plan; empty where there is none."""
        command = self.detect_command
        return hashlib.sha256(command.encode()).hexdigest()[:_DIGITS] if command else ""

    def added_to(self, policy: Policy) -> Policy:
        """The rules with it, where they have it asked; `UsageError` where they do, and there is none."""
        if Source.COMMAND not in policy.detect:
            if self.detect_command:
                say("warning: --detect-command has no effect without --detect command: it is not asked")
            return replace(policy, detect_command="")
        self._refuse_none()
        return replace(policy, detect_command=self.digest)

    def refuse_another(self, policy: Policy) -> None:
        """`UsageError` where these rules were made for another command."""
        if Source.COMMAND in policy.detect and policy.detect_command != self.digest:
            given = "another" if self.detect_command else "a"
            none = "" if self.detect_command else ", and none is given"
            raise UsageError(
                f"it was started or planned with {given} --detect-command{none}",
                hint="Pass the same one: the command itself is stored neither on the cluster nor in the plan.",
            )

    def probe(self, sources: tuple[Source, ...]) -> Probe:
        """What hosts are asked; `UsageError` where that is a command, and there is none."""
        if Source.COMMAND in sources:
            self._refuse_none()
        return Probe(sources, self.detect_command)

    def _refuse_none(self) -> None:
        if not self.detect_command:
            hint = "Give it as --detect-command, ROLLOUT_DETECT_COMMAND, or detect-command in the settings file."
            raise UsageError("--detect command needs a --detect-command", hint=hint)
