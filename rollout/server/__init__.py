"""A FleetLock server, which drains nodes before their hosts reboot.

Every replica answers hosts, in request threads. Only the worker of the replica that holds the lock
changes nodes. They share slots (a ConfigMap) and marks on the Node. A slot's life:

    host            requests a reboot, every few minutes           `pre-reboot`
    request thread  reserves a slot for the host                   `admission.SlotAdmission.reserve`
    worker          drains the node, and marks it `drained`        `slot_steps.SlotSteps`
    request thread  grants the reboot: marks the node `rebooting`  `slot_requests.grant_reboot`
    host            reboots, and reports steady state              `steady-state`
    worker          proves the reboot, and returns the node        `slot_steps.SlotSteps`
    worker          releases the slot when the cluster settled     `worker.Worker`
    host, operator  cancels the reboot: the worker returns the node, and releases the slot
    worker          suspends grants if a step fails; resumes them if the host reboots after all
    worker          fails the slot if the node stays cordoned, until a report or `release`

`rollout.model.fleetlock` explains the terms.
"""
