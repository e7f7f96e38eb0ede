"""What stands on a lab's cluster of a rollout and of its nodes, and what others write there.

It is read where it stands: within the lab's loop as from outside of it. What is written takes the
loop's turn.
"""

from typing import Any

from rollout.lab.api.resources import CONFIGMAPS, LEASES, NODES, Resource
from rollout.lab.api.store import Json
from rollout.lab.hosts.faults import HostFaults
from rollout.lab.lab import Lab

PREFIX = "node-rollout.dev/"


def stored(lab: Lab, resource: Resource, name: str, namespace: str = "") -> Json:
    """An object that is there."""
    found = lab.store.get(resource, name, namespace)
    assert found is not None, f"there is no {resource.plural} {name}"
    return found


def node_of(lab: Lab, name: str) -> Json:
    return stored(lab, NODES, name)


def metadata(lab: Lab, node: str, kind: str) -> dict[str, str]:
    """A Node's `labels` or `annotations`."""
    return {**(node_of(lab, node)["metadata"].get(kind) or {})}


def annotations(lab: Lab, node: str) -> dict[str, str]:
    return metadata(lab, node, "annotations")


def marks_of(lab: Lab, node: str) -> dict[str, str]:
    """What stands on a Node of ours, without our prefix."""
    return {
        key.removeprefix(PREFIX): text
        for key, text in annotations(lab, node).items()
        if key.startswith(PREFIX)
    }


def is_cordoned(lab: Lab, node: str) -> bool:
    return bool(node_of(lab, node)["spec"].get("unschedulable"))


def write(lab: Lab, node: str, kind: str, **values: str | None) -> None:
    """Write a Node's labels or annotations; None takes one away."""

    def put() -> None:
        body = node_of(lab, node)
        wanted = {
            key: value
            for key, value in {**metadata(lab, node, kind), **values}.items()
            if value is not None
        }
        lab.store.put(NODES, {**body, "metadata": {**body["metadata"], kind: wanted}})

    lab.call(put)


def write_spec(lab: Lab, node: str, **values: Any) -> None:
    """Write fields of a Node's spec."""
    lab.call(
        lambda: lab.store.put(
            NODES, {**node_of(lab, node), "spec": {**node_of(lab, node)["spec"], **values}}
        )
    )


def replace_machine(lab: Lab, node: str, machine_id: str) -> None:
    """Its kubelet reports another machine from now on, in the same boot."""

    def put() -> None:
        lab.machines[node].machine_id = machine_id
        body = node_of(lab, node)
        info = {**body["status"]["nodeInfo"], "machineID": machine_id}
        lab.store.put(NODES, {**body, "status": {**body["status"], "nodeInfo": info}})

    lab.call(put)


def inflict(lab: Lab, faults: HostFaults, *nodes: str) -> None:
    """Have these hosts misbehave; all, where none is named."""

    def begin() -> None:
        for name in nodes or lab.machines:
            lab.machines[name].inflict(faults)

    lab.call(begin)


def rebooted(lab: Lab) -> set[str]:
    """The nodes whose hosts have been rebooted."""
    return {name for name, times in lab.scoreboard().reboots.items() if times}


def untouched(lab: Lab) -> bool:
    """Whether no host was rebooted and no pod evicted."""
    score = lab.scoreboard()
    return score.clean and not any(score.reboots.values()) and not score.evictions


def record(lab: Lab) -> Json | None:
    return lab.store.get(CONFIGMAPS, "node-rollout", "kube-system")


def lease_of(lab: Lab) -> Json:
    return stored(lab, LEASES, "node-rollout", "kube-system")


def holder_of(lab: Lab) -> str:
    """Who holds the Lease; empty for nobody."""
    lease = lab.store.get(LEASES, "node-rollout", "kube-system")
    return str(lease["spec"].get("holderIdentity") or "") if lease else ""


def run_of(lab: Lab) -> str:
    """The rollout whose Lease it is."""
    return str(lease_of(lab)["metadata"]["annotations"][PREFIX + "run"])


def unlock(lab: Lab) -> tuple[str, ...]:
    """The flag that passes over whoever was killed; none, where the Lease is free."""
    run = lease_of(lab)["metadata"].get("annotations", {}).get(PREFIX + "run")
    return ("--force-unlock", run) if run else ()


def steal_lease(lab: Lab) -> None:
    """It is somebody else's from now on."""

    def put() -> None:
        lease = lease_of(lab)
        lab.store.put(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": "thief"}})

    lab.call(put)
