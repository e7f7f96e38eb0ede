"""The interface of `reboot.rescue`, the command for a host that does not come back."""

from enum import StrEnum


class RescueVariable(StrEnum):
    """Environment variables of the command; none sets a flag."""

    RUN = "ROLLOUT_RESCUE_RUN"
    NODE = "ROLLOUT_RESCUE_NODE"
    ADDRESS = "ROLLOUT_RESCUE_ADDRESS"
