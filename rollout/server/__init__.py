"""FleetLock over HTTP: hosts that reboot by themselves ask here, and are answered by the rules of a rollout.

    protocol   what a client sends and is answered    nodes      which node asks, and its plan
    admission  whether a node may begin               holders    pre-reboot and steady-state of
    slots that are held steps      one node's way, without SSH            worker     whoever holds
    the Lease takes slots along it state      settings, slots, Lease: what all share service    the
    two requests, and the whole http       the wire, with its `connections`

Every replica answers from what stands on the cluster; the one that holds the Lease cordons, drains
and uncordons.
"""
