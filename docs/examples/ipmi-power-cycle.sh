#!/bin/sh
# Power-cycle the host of a node through its BMC with IPMI, for rollout's reboot.rescue. The BMC of
# the node NAME is NAME-bmc.example.com.
set -eu

power() {
    ipmitool -I lanplus -H "$ROLLOUT_RESCUE_NODE-bmc.example.com" \
        -U rollout -f /etc/rollout/bmc-password chassis power "$1"
}

# A host that is off cannot be power-cycled.
power cycle || power on
