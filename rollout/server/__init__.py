"""A FleetLock server: hosts request their reboots, and it drains their nodes first.

Every replica answers hosts, in request threads. Only the worker of the replica that holds the Lease
cordons, drains and uncordons. They share slots (a ConfigMap) and marks on the Node. A slot's life:

    host     requests its reboot (`pre-reboot`), and again every few minutes
    request  reserves a slot, which the host then holds: `admission.SlotAdmission.reserve`
    worker   drains the node, and marks it `drained`: `slot_steps`
    request  grants the host's next request, and marks the node `rebooting`: `slot_requests.grant_reboot`
    host     reboots, and reports steady state (`steady-state`): `slot_requests.record_report`
    worker   proves the reboot (new boot ID, Ready), and returns the node to service: `slot_steps`
    worker   releases the slot once the cluster has settled: `worker`
    host or operator  cancels the reboot: the worker returns the node, and releases the slot
    worker   suspends grants if a step fails, and resumes them if the host reboots after all
    worker   fails the slot if its node stays cordoned, until the host reports or cancels

`rollout.model.fleetlock` explains the terms.
"""
