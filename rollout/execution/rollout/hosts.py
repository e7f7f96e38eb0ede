"""The hosts of a rollout, and how they are reached over SSH."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from rollout.execution.node.ssh_host import RememberingShell, SshHost
from rollout.gather.hosts.probe_command import REBOOT_COMMAND, Probe
from rollout.model.host import Host
from rollout.model.plan import PlannedNode
from rollout.model.policy import Policy
from rollout.ports import HostExecutor


@dataclass(frozen=True, slots=True)
class RolloutHosts:
    """The hosts by Node name, and the settings for reaching and rebooting them.

    `probe_timeout` is in seconds.
    """

    by_node: Mapping[str, Host]
    shell: HostExecutor
    probe_timeout: float = 60.0
    reboot_command: str = REBOOT_COMMAND
    detect_command: str = ""

    def __contains__(self, node: str) -> bool:
        return node in self.by_node

    def attending(self, nodes: Iterable[PlannedNode]) -> AbstractContextManager[None]:
        hosts = [self.by_node[node.name] for node in nodes if node.name in self.by_node]
        return self.shell.attending(hosts)

    def host(self, planned: PlannedNode, policy: Policy) -> SshHost:
        return SshHost(
            host=self.by_node[planned.name],
            planned=planned,
            shell=RememberingShell(self.shell),
            probe_timeout=self.probe_timeout,
            reboot_command=self.reboot_command,
            probe=Probe(policy.detect, self.detect_command),
        )
