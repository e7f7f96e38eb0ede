"""Other people's hands in a lab: what somebody does beside a rollout, at once or at a given phase of it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from rollout.lab.api.defaulting import with_defaults
from rollout.lab.api.resources import NODES, PODS
from rollout.lab.api.store import Change, Json
from rollout.lab.hosts.faults import HEALTHY, HostFaults, SshFault
from rollout.lab.lab import Lab
from rollout.lab.world.objects import LAB_PREFIX, annotations_of, is_daemon, is_mirror, spec_of
from rollout.lab.world.reports import with_readiness

PREFIX = "node-rollout.dev/"


def marks(lab: Lab, node: str) -> dict[str, str]:
    """What stands on a Node of ours, without our prefix."""
    found = lab.call(lambda: lab.store.get(NODES, node))
    assert found is not None
    return _marks_of(found)


def _marks_of(node: Json) -> dict[str, str]:
    annotations = node["metadata"].get("annotations", {})
    return {key.removeprefix(PREFIX): value for key, value in annotations.items() if key.startswith(PREFIX)}


def at_phase(lab: Lab, phase: str, act: Callable[[str], object], *, node: str = "") -> None:
    """Do something, once and within the lab's loop, when a Node's marks name this phase; `act` hears which Node's."""
    done: list[str] = []

    def changed(change: Change) -> None:
        name = change.obj["metadata"]["name"]
        if change.resource is NODES and not done and node in ("", name) and _marks_of(change.obj).get("phase") == phase:
            done.append(name)
            # After the write that is under way has been answered.
            asyncio.get_running_loop().call_soon(act, name)

    lab.call(lambda: lab.store.subscribe(changed))


def cordon(lab: Lab, node: str, *, cordoned: bool) -> None:
    """As kubectl does; in the lab's loop."""
    found = lab.store.get(NODES, node)
    assert found is not None
    rest = {key: value for key, value in spec_of(found).items() if key != "unschedulable"}
    lab.store.put(NODES, {**found, "spec": {**rest, **({"unschedulable": True} if cordoned else {})}})


def refill(lab: Lab, node: str) -> str:
    """The name of a pod of some controller that is bound to the node, and runs there; in the lab's loop."""
    owner = {"apiVersion": "example.com/v1", "kind": "Game", "name": "chess", "uid": "chess", "controller": True}
    spec = {"nodeName": node, "containers": [{"name": "app", "image": "registry.example/app:1.0"}]}
    meta = {
        "name": f"late-{uuid4().hex[:8]}",
        "namespace": "default",
        "ownerReferences": [owner],
        "labels": {"app": "late"},
    }
    lab.store.create(PODS, with_defaults(PODS, {"metadata": meta, "spec": spec}))
    return str(meta["name"])


def set_well(lab: Lab, node: str, name: str, *, well: bool) -> None:
    """Whether pods that stay on the node, whose names begin so, can be ready; in the lab's loop.

    As a container that crashes: the pod is there, and is not ready, whatever its host does; well again, it is ready.
    """
    mark = {LAB_PREFIX + "ready": "never"}
    for pod in list(lab.store.pods_on(node)):
        if (is_mirror(pod) or is_daemon(pod)) and pod["metadata"]["name"].startswith(name):
            rest = {key: value for key, value in annotations_of(pod).items() if key not in mark}
            marked = {**pod, "metadata": {**pod["metadata"], "annotations": rest if well else {**rest, **mark}}}
            # Of one that is well again its kubelet says so.
            lab.store.put(PODS, marked if well else with_readiness(marked, lab.world.cluster.now(), ready=False))


def close_ssh(lab: Lab, node: str) -> None:
    """Nothing listens on the host's SSH port; in the lab's loop."""
    lab.machines[node].inflict(HostFaults(ssh=SshFault.CLOSED))


def open_ssh(lab: Lab, node: str) -> None:
    """It does again; in the lab's loop."""
    lab.machines[node].inflict(HEALTHY)


def later(seconds: float, act: Callable[[], object]) -> None:
    """Do it after so many real seconds; in the lab's loop."""
    asyncio.get_running_loop().call_later(seconds, act)


def written(folder: Path, name: str, text: str) -> Path:
    """A file with this text."""
    path = folder / name
    path.write_text(text)
    return path
