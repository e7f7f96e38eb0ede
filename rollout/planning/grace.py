"""How long the nodes in flight may take to their end. Pure."""

from rollout.model.policy import Policy


def slowest_node_seconds(policy: Policy) -> float:
    """From the first mark on a node to its last, where each step takes all the time that it may.

    Pools' own times count, and checks around the reboot only where there are any.
    """
    pools = policy.pools
    drain = max(policy.drain.timeout, *(pool.drain_timeout or 0 for pool in pools), 0)
    reboot = max(policy.reboot_timeout, *(pool.reboot_timeout or 0 for pool in pools), 0)
    ready = max(policy.ready_timeout, *(pool.ready_timeout or 0 for pool in pools), 0)
    hooks = policy.gates.hooks
    checks = hooks.timeout * (bool(hooks.before) + bool(hooks.after))
    courtesy = policy.courtesy
    waits = courtesy.drain_delay + courtesy.wait_for_users + courtesy.reboot_delay
    return policy.exclude_from_load_balancers + waits + drain + reboot + ready + checks
