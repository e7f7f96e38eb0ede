#!/usr/bin/env python3
"""The cluster's Nodes as a dynamic Ansible inventory: `ansible-inventory -i inventory/nodes.py --graph`.

The script runs `rollout inventory` with its own Python if that has the rollout package, or else with the `rollout`
command in PATH. To select the cluster and the nodes, set environment variables such as KUBECONFIG, ROLLOUT_CONTEXT,
ROLLOUT_SELECTOR, ROLLOUT_SSH_KEY and ROLLOUT_KNOWN_HOSTS.
Groups: nodes, role_*, zone_*, os_version_*, needs_reboot, needs_no_reboot, cordoned. Variables: rollout_*.
"""

import importlib.util
import os
import sys


def command() -> list[str]:
    """Return the command that starts rollout."""
    if importlib.util.find_spec("rollout") is not None:
        return [sys.executable, "-P", "-m", "rollout"]
    return ["rollout"]


if __name__ == "__main__":
    program = command()
    try:
        os.execvp(program[0], [*program, "inventory", *sys.argv[1:]])  # noqa: S606 - constant program
    except FileNotFoundError:
        sys.exit(
            "inventory/nodes.py: rollout is not installed. To install it, run in a clone of rollout: pipx install ."
        )
