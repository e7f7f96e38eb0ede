#!/usr/bin/env python3
"""The cluster's Nodes as a dynamic Ansible inventory: `ansible-inventory -i inventory/nodes.py --graph`.

It runs `rollout inventory` of the Python it is started with, else of PATH. What that is to work on is said by the
environment: KUBECONFIG, ROLLOUT_CONTEXT, ROLLOUT_SELECTOR, ROLLOUT_SSH_KEY, ROLLOUT_KNOWN_HOSTS and so on.
Groups: nodes, role_*, zone_*, os_version_*, needs_reboot, needs_no_reboot, cordoned. Variables: rollout_*.
"""

import importlib.util
import os
import sys


def command() -> list[str]:
    """Return the program, as it can be started from here."""
    if importlib.util.find_spec("rollout") is not None:
        return [sys.executable, "-P", "-m", "rollout"]
    return ["rollout"]


if __name__ == "__main__":
    program = command()
    try:
        os.execvp(program[0], [*program, "inventory", *sys.argv[1:]])  # noqa: S606 - constant program
    except FileNotFoundError:
        sys.exit(
            "inventory/nodes.py: rollout is not installed here; in a clone of its repository: pipx install ."
        )
