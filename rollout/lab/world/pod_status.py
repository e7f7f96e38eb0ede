"""What a kubelet writes into a pod's status, as pure functions."""

from datetime import datetime, timedelta
from typing import Any

from rollout.lab.api.store import Json, timestamp
from rollout.lab.world.objects import condition, is_ready, spec_of, status_of, with_condition, with_status

# What a container ends with that was killed, and one that a reboot took away.
_KILLED = 137


def started(
    pod: Json, now: datetime, *, host_ip: str, pod_ip: str, ready: bool, restarts: int, starting: timedelta
) -> Json:
    """The pod with its containers running, for the first time or again.

    It had its node at least as long ago as its start took: in a world that is made at rest no time has passed.
    """
    container_id = f"containerd://{pod['metadata']['uid'].replace('-', '')}{restarts:08x}{0:024x}"
    running = {"running": {"startedAt": timestamp(now)}}
    known = status_of(pod).get("containerStatuses")
    before = {status["name"]: status["state"] for status in known or ()}
    containers = [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": f"{container.get('image', '')}@sha256:lab",
            "containerID": container_id,
            "ready": ready,
            "started": True,
            "restartCount": restarts,
            "state": running,
            "lastState": before.get(container["name"], {}) if restarts else {},
        }
        for container in spec_of(pod).get("containers") or ()
    ]
    running_pod = with_status(
        pod,
        phase="Running",
        hostIP=host_ip,
        hostIPs=[{"ip": host_ip}],
        podIP=pod_ip,
        podIPs=[{"ip": pod_ip}],
        startTime=status_of(pod).get("startTime") or timestamp(now),
        containerStatuses=containers,
    )
    return with_readiness(_bound_before(running_pod, timestamp(now - starting)), now, ready=ready)


def _bound_before(pod: Json, latest: str) -> Json:
    """The pod with a node since then, or longer."""
    conditions = [
        {**each, "lastTransitionTime": min(each["lastTransitionTime"], latest)}
        if each["type"] == "PodScheduled" and each.get("lastTransitionTime")
        else each
        for each in status_of(pod).get("conditions") or ()
    ]
    return with_status(pod, conditions=conditions)


def with_readiness(pod: Json, now: datetime, *, ready: bool) -> Json:
    """The pod with the conditions of a running one that is ready, or not yet."""
    explained: Json = {}
    if not ready:
        names = " ".join(container["name"] for container in spec_of(pod).get("containers") or ())
        explained = {
            "reason": "ContainersNotReady",
            "message": f"containers with unready status: [{names}]",
        }
    verdict = "True" if ready else "False"
    for new in (
        {"type": "PodReadyToStartContainers", "status": "True"},
        {"type": "Initialized", "status": "True"},
        {"type": "Ready", "status": verdict, **explained},
        {"type": "ContainersReady", "status": verdict, **explained},
        {"type": "PodScheduled", "status": "True"},
    ):
        pod = with_condition(pod, {"lastProbeTime": None, **new}, now)
    return pod


def marked_unready(pod: Json, now: datetime) -> Json:
    """The pod as the node lifecycle leaves it when its node falls silent: Ready is no longer True."""
    if not is_ready(pod):
        return pod
    ready = condition(pod, "Ready") or {}
    return with_condition(pod, {**_without_time(ready), "status": "False"}, now)


def stopped(pod: Json, now: datetime, *, reason: str, code: int = _KILLED) -> Json:
    """The pod with its containers terminated; its phase stays."""
    ended = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": timestamp(now)}}
    containers = _each_container(pod, state=ended, ready=False, started=False)
    return with_readiness(with_status(pod, containerStatuses=containers), now, ready=False)


def finished(pod: Json, now: datetime, *, code: int, reason: str) -> Json:
    """The pod at its end: Succeeded, or Failed where a container did."""
    phase = "Failed" if code else "Succeeded"
    ended = with_status(stopped(pod, now, reason=reason, code=code), phase=phase)
    if code:
        return ended
    for kind in ("Ready", "ContainersReady"):
        new = {"type": kind, "status": "False", "reason": "PodCompleted", "lastProbeTime": None}
        ended = with_condition(ended, new, now)
    return ended


def restarts_of(pod: Json) -> int:
    """How often its containers were started again."""
    statuses = status_of(pod).get("containerStatuses") or ()
    return max((int(status["restartCount"]) for status in statuses), default=0)


def _each_container(pod: Json, **fields: Any) -> list[Json]:
    return [{**status, **fields} for status in status_of(pod).get("containerStatuses") or ()]


def _without_time(condition: Json) -> Json:
    return {name: value for name, value in condition.items() if name != "lastTransitionTime"}
