"""FleetLock over HTTP: hosts that reboot by themselves ask here, and are answered by the rules of a rollout.

    requests   what a client has sent, read            answers    what it is answered, and why
    machines   which node asks                         admission  whether a node may begin
    grants     pre-reboot                              releases   steady-state
    steps      one node's way, without SSH             worker     whoever holds the Lease takes nodes along it
    http       the wire

Every replica answers from what stands on the cluster; the one that holds the Lease cordons, drains and uncordons.
"""
