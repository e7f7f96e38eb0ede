"""FleetLock over HTTP: hosts that reboot by themselves ask here, under the rules of a rollout.

* `http`, with its `connections`: the wire
* `protocol`: what a client sends, and what it is answered
* `service`: the two requests, and the threads beside them
* `admission`: whether a host without a slot may have one
* `holders`: the answers to hosts that hold a slot
* `nodes`: which node asks, its plan, and its Node that was deleted during the reboot
* `state`: settings, slots and the Lease, which all parts share
* `worker`: the replica that holds the Lease takes each slot's node through its run
* `steps`: the steps of a node whose host asks by itself

Every replica answers from the state in the cluster; the one that holds the Lease cordons, drains
and uncordons.
"""
