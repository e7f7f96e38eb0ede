"""FleetLock over HTTP: hosts that reboot by themselves ask here, under the rules of a rollout.

`http` passes a request to `service`. If the host holds no slot, `admission` decides whether it gets
one; else `holders` answers. `worker` takes the node of each slot through its `steps`.

Every replica answers from the state in the cluster; the one that holds the Lease cordons, drains
and uncordons.
"""
