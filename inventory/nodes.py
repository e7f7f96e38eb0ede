#!/usr/bin/env python3
"""The cluster's Nodes as a dynamic Ansible inventory: `ansible-inventory -i inventory/nodes.py --graph`.

It runs `rollout inventory` with the Python that runs this script if rollout is installed there, or else from PATH.
Select the cluster and the nodes in the environment: KUBECONFIG, ROLLOUT_CONTEXT, ROLLOUT_SELECTOR, ROLLOUT_SSH_KEY,
ROLLOUT_KNOWN_HOSTS and so on.
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
