"""The cells of pods: the one table in which they need more than a line each.

The status of a pod in a table is not its phase but the most telling thing about its containers.
"""

from collections.abc import Iterator
from datetime import datetime

from rollout.lab.api.durations import age
from rollout.lab.api.store import Json


def _containers(pod: Json, kind: str = "containerStatuses") -> list[Json]:
    return list((pod.get("status") or {}).get(kind) or ())


def ready(pod: Json, _now: datetime) -> str:
    """Ready containers of all containers."""
    count = sum(1 for status in _containers(pod) if status.get("ready") and "running" in (status.get("state") or {}))
    return f"{count}/{len(pod['spec'].get('containers') or ())}"


def status(pod: Json, _now: datetime) -> str:
    """What its containers are doing."""
    return pod_status(pod)


def pod_status(pod: Json) -> str:
    """What the STATUS column says."""
    about = pod.get("status") or {}
    reason = str(about.get("reason") or about.get("phase") or "Unknown")
    initializing = _init_status(pod)
    reason = initializing or _container_status(pod, reason)
    if not pod["metadata"].get("deletionTimestamp"):
        return reason
    if about.get("reason") == "NodeLost":
        return "Unknown"
    return reason if about.get("phase") in {"Succeeded", "Failed"} else "Terminating"


def _init_status(pod: Json) -> str:
    """`Init:1/2`, `Init:Error`; empty once all init containers are done."""
    statuses = _containers(pod, "initContainerStatuses")
    for done, status in enumerate(statuses):
        state = status.get("state") or {}
        terminated = state.get("terminated")
        if terminated is not None and terminated.get("exitCode") == 0:
            continue
        if terminated is not None:
            return f"Init:{_termination(terminated)}"
        waiting = (state.get("waiting") or {}).get("reason", "")
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{done}/{len(statuses)}"
    return ""


def _container_status(pod: Json, reason: str) -> str:
    running = False
    for status in reversed(_containers(pod)):
        state = status.get("state") or {}
        cause = (state.get("waiting") or {}).get("reason") or ""
        if not cause and "terminated" in state:
            cause = _termination(state["terminated"])
        running = running or (bool(status.get("ready")) and "running" in state)
        reason = cause or reason
    if reason == "Completed" and running:
        return "Running" if _condition_ready(pod) else "NotReady"
    return reason


def _termination(terminated: Json) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _condition_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition.get("status") == "True" for condition in conditions)


def restarts(pod: Json, now: datetime) -> str:
    """How often its containers were restarted, and when last."""
    total = sum(status.get("restartCount", 0) for status in _containers(pod))
    finished = max(_last_ends(pod), default="")
    return f"{total} ({age(finished, now)} ago)" if total and finished else str(total)


def _last_ends(pod: Json) -> Iterator[str]:
    for status in _containers(pod):
        terminated = (status.get("lastState") or {}).get("terminated") or {}
        if terminated.get("finishedAt"):
            yield terminated["finishedAt"]


def gates(pod: Json, _now: datetime) -> str:
    """Passed readiness gates of all of them."""
    names = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()]
    conditions = {
        condition["type"]: condition.get("status") for condition in (pod.get("status") or {}).get("conditions") or ()
    }
    passed = sum(1 for name in names if conditions.get(name) == "True")
    return f"{passed}/{len(names)}" if names else ""
