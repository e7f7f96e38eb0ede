"""The host behind a node: how it is asked, and which machine, in which boot, it was planned as."""

from dataclasses import dataclass

from rollout.execution.node.remembering_shell import RememberingShell
from rollout.gather.hosts.probe_command import REBOOT_COMMAND, USUAL_PROBE, Probe
from rollout.gather.hosts.users import WALL_MESSAGE, wall_command
from rollout.model.host import Host
from rollout.model.plan import PlannedNode
from rollout.ports import Clock, CommandResult


@dataclass(frozen=True, slots=True)
class NodeHost:
    """A host, and the node that it has to be. `probe_timeout` in seconds; `probe` is what it is asked."""

    host: Host
    planned: PlannedNode
    shell: RememberingShell
    clock: Clock
    probe_timeout: float = 60.0
    reboot_command: str = REBOOT_COMMAND
    probe: Probe = USUAL_PROBE
    wall_command: str = wall_command(WALL_MESSAGE)

    def run(self, command: str, *, timeout: float) -> CommandResult:
        """The host's answer to a command; raises `SshError` or one of its subclasses."""
        return self.shell.run(self.host, command, timeout=timeout)
