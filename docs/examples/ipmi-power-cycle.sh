#!/bin/sh
# Power-cycle the host of a node through its BMC with IPMI, for rollout's reboot.rescue setting. The
# address of the BMC is NODE-bmc.example.com, where NODE is the name of the node.
set -eu

power() {
    ipmitool -I lanplus -H "$ROLLOUT_RESCUE_NODE-bmc.example.com" \
        -U rollout -f /etc/rollout/bmc-password chassis power "$1"
}

# If the host is off, a power cycle fails.
power cycle || power on
