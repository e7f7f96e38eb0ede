from enum import StrEnum


class RescueVariable(StrEnum):
    """Variables of `reboot.rescue`; none sets a flag."""

    RUN = "ROLLOUT_RESCUE_RUN"
    NODE = "ROLLOUT_RESCUE_NODE"
    ADDRESS = "ROLLOUT_RESCUE_ADDRESS"
