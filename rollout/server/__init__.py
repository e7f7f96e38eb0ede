"""A FleetLock server: hosts that reboot by themselves ask it, and it drains their nodes.

Every replica answers hosts, in request threads. Only the worker of the replica that holds the Lease
cordons, drains and uncordons. The two share slots (a ConfigMap) and marks on the Node:

    request thread (`http`, `service`)            worker (`worker`, `slot_steps`)
    ----------------------------------            -------------------------------
    pre-reboot, `admission.SlotAdmission.reserve`:
    write a slot                                  poll slots for one that needs work
                                                  cordon and drain the node, mark it `drained`
    pre-reboot again, `slot_requests.grant`:
    if the node is marked `drained`, mark it
    `rebooting`, check it again, answer `granted`
                                                  poll the Node for `rebooting`, then for a new
    (the host reboots)                            boot ID and Ready; mark it `booted`, `ready`
    steady-state, `slot_requests.record_report`:
    write the report into the slot                poll the slot for the report
    `slot_requests.await_return`: poll the Node
    until it is returned, answer `released`       return the node; wait until the cluster has
                                                  settled; free the slot

`rollout.model.fleetlock` explains the terms.
"""
