"""A FleetLock server: hosts that reboot by themselves ask it, and it drains their nodes.

Every replica answers hosts, in request threads. Only the worker of the replica that holds the Lease
cordons, drains and uncordons. The two share slots (a ConfigMap) and marks on the Node:

    request thread                                worker
    --------------                                ------
    pre-reboot: write a slot for the node         poll slots for one that needs work
                                                  cordon and drain the node, mark it `drained`
    pre-reboot again: find the mark `drained`,
    mark the node `rebooting`, check again,
    answer `granted`                              poll the Node for `rebooting`, then for a new
    (the host reboots)                            boot ID and Ready; mark it `booted`, `ready`
    steady-state: write the report into the slot  poll the slot for the report
    poll the Node until it is returned,           return the node; wait until the cluster has
    answer `released`                             settled; free the slot
"""
