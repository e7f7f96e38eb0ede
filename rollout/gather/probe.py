"""What one SSH command tells of a host: the constant command, and the pure parser of its answer."""

from rollout.gather.probe_command import PROBE_COMMAND, REBOOT_COMMAND

__all__ = ["PROBE_COMMAND", "REBOOT_COMMAND"]
