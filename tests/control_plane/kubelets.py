"""Stand-ins for kubelets: they register real machines as Nodes and run their pods in name only."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from tests.control_plane.rest import RefusedError, Rest
from tests.e2e.machines import Machine

# The annotation that gives a pod's seconds until it ends by itself.
DURATION = "test/seconds"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_HEARTBEAT = 2.0
_LOOK = 0.25
_SECONDS_TO_BE_READY = 1.0
_RESOURCES = {"cpu": "4", "memory": "8Gi", "pods": "110"}


@contextmanager
def kubelets(rest: Rest, machines: Sequence[Machine]) -> Iterator[None]:
    """One for each machine, for as long as the context lasts."""
    stop = threading.Event()
    running = [Kubelet(rest, machine, stop) for machine in machines]
    for kubelet in running:
        kubelet.register()
        kubelet.start()
    try:
        yield
    finally:
        stop.set()
        for kubelet in running:
            kubelet.join()


class Kubelet(threading.Thread):
    """Reports what its machine is, and says of each pod what a kubelet would."""

    def __init__(self, rest: Rest, machine: Machine, stop: threading.Event) -> None:
        super().__init__(name=f"kubelet-{machine.name}", daemon=True)
        self._rest = rest
        self._machine = machine
        self._stop_event = stop
        self._boot_id = ""
        self._heartbeat = 0.0
        self._began: dict[str, float] = {}
        self._terminating: dict[str, float] = {}

    def register(self) -> None:
        """Create the Node and its Lease."""
        name = self._machine.name
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        if name.startswith("control"):
            labels["node-role.kubernetes.io/control-plane"] = ""
        self._rest.post("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _now_micro()}
        self._rest.post(_LEASES, {"metadata": {"name": name}, "spec": spec})

    def run(self) -> None:
        """Look at the machine and at its pods, until the end."""
        while not self._stop_event.wait(_LOOK):
            booted = self._machine.booted
            if not booted:
                continue
            try:
                self._report(booted)
                self._sync()
            except RefusedError as error:
                # Somebody else was first.
                if error.status not in {404, 409}:
                    raise

    def _report(self, booted: str) -> None:
        has_rebooted = booted != self._boot_id
        if not has_rebooted and time.monotonic() - self._heartbeat < _HEARTBEAT:
            return
        if has_rebooted:
            # Its containers start again.
            self._began.clear()
        self._heartbeat = time.monotonic()
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
            "lastHeartbeatTime": _now(),
            "lastTransitionTime": _now(),
        }
        status = {
            "addresses": [{"type": "InternalIP", "address": self._machine.address}],
            "capacity": _RESOURCES,
            "allocatable": _RESOURCES,
            "conditions": [ready],
            "nodeInfo": self._information(booted),
        }
        name = self._machine.name
        self._rest.patch(f"/api/v1/nodes/{name}/status", {"status": status})
        self._rest.patch(f"{_LEASES}/{name}", {"spec": {"renewTime": _now_micro()}})
        self._boot_id = booted

    def _information(self, booted: str) -> dict[str, str]:
        return {
            "machineID": self._machine.machine_id,
            "systemUUID": self._machine.machine_id,
            "bootID": booted,
            "kernelVersion": "6.6.0",
            "osImage": f"Flatcar Container Linux by Kinvolk {self._machine.os_version}",
            "containerRuntimeVersion": "containerd://2.0.0",
            "kubeletVersion": "v1.36.0",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        }

    def _sync(self) -> None:
        query = f"fieldSelector=spec.nodeName={self._machine.name}&resourceVersion=0"
        for pod in self._rest.items(f"/api/v1/pods?{query}"):
            if "deletionTimestamp" in pod["metadata"]:
                self._terminate(pod)
            elif pod["status"]["phase"] not in {"Succeeded", "Failed"}:
                self._run_pod(pod)

    def _terminate(self, pod: Any) -> None:
        grace = pod["metadata"].get("deletionGracePeriodSeconds", 0)
        uid = pod["metadata"]["uid"]
        began = self._terminating.setdefault(uid, time.monotonic())
        # The program ends a second after it is told to.
        if time.monotonic() - began >= min(grace, 1):
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
            self._rest.delete(_path(pod), options)

    def _run_pod(self, pod: Any) -> None:
        began = self._began.setdefault(pod["metadata"]["uid"], time.monotonic())
        lasted = time.monotonic() - began
        seconds = pod["metadata"].get("annotations", {}).get(DURATION)
        if seconds and lasted >= float(seconds):
            self._set_status(pod, phase="Succeeded", ready=False)
        elif lasted >= _SECONDS_TO_BE_READY and not _is_ready(pod):
            self._set_status(pod, phase="Running", ready=True)
        elif lasted < _SECONDS_TO_BE_READY and _is_ready(pod):
            self._set_status(pod, phase="Running", ready=False)

    def _set_status(self, pod: Any, *, phase: str, ready: bool) -> None:
        conditions = [
            {
                "type": kind,
                "status": "True" if ready else "False",
                "lastTransitionTime": _now(),
            }
            for kind in ("Ready", "ContainersReady")
        ]
        finished = {"terminated": {"exitCode": 0, "startedAt": _now(), "finishedAt": _now()}}
        running = {"running": {"startedAt": _now()}}
        containers = [
            {
                "name": container["name"],
                "ready": ready,
                "restartCount": 0,
                "image": container["image"],
                "imageID": "",
                "state": finished if phase == "Succeeded" else running,
            }
            for container in pod["spec"]["containers"]
        ]
        status = {"phase": phase, "conditions": conditions, "containerStatuses": containers}
        self._rest.patch(f"{_path(pod)}/status", {"status": status})


def _path(pod: Any) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def _is_ready(pod: Any) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _now_micro() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
