"""What a pod asks of its node, summed as the scheduler sums it."""

from collections.abc import Iterable, Mapping

from rollout.gather.cluster import wire
from rollout.gather.cluster.quantities import milli, whole
from rollout.model.cluster import Resources

_NOTHING = Resources()


def amounts(quantities: Mapping[str, wire.Quantity]) -> Resources:
    """CPU, memory and pods out of a map of quantities; ValueError where one cannot be read."""
    return Resources(
        cpu_milli=milli(str(quantities.get("cpu", 0))),
        memory=whole(str(quantities.get("memory", 0))),
        pods=whole(str(quantities.get("pods", 0))),
    )


def pod_requests(spec: wire.PodSpec) -> Resources:
    """A pod's requests: its containers and sidecars together, or a greedier init container; plus overhead.

    Requests of the pod as a whole take the place of its containers'.
    """
    running, starting = _containers(spec)
    effective = _override(_larger(running, starting), spec.resources)
    total = _plus(effective, amounts(spec.overhead)) if spec.overhead else effective
    return Resources(total.cpu_milli, total.memory, pods=1)


def _containers(spec: wire.PodSpec) -> tuple[Resources, Resources]:
    """What the pod needs while it runs, and the most it needs at any moment before."""
    sidecars, starting = _NOTHING, _NOTHING
    for container in spec.init_containers or ():
        if container.restart_policy == "Always":
            sidecars = _plus(sidecars, _requests(container))
            starting = _larger(starting, sidecars)
        else:
            starting = _larger(starting, _plus(sidecars, _requests(container)))
    return _plus(sidecars, _total(spec.containers or ())), starting


def _total(containers: Iterable[wire.Container]) -> Resources:
    total = _NOTHING
    for container in containers:
        total = _plus(total, _requests(container))
    return total


def _requests(container: wire.Container) -> Resources:
    if container.resources is None or not container.resources.requests:
        return _NOTHING
    return amounts(container.resources.requests)


def _override(summed: Resources, of_pod: wire.Requirements | None) -> Resources:
    if of_pod is None or not of_pod.requests:
        return summed
    asked = amounts(of_pod.requests)
    return Resources(
        cpu_milli=asked.cpu_milli if "cpu" in of_pod.requests else summed.cpu_milli,
        memory=asked.memory if "memory" in of_pod.requests else summed.memory,
    )


def _plus(left: Resources, right: Resources) -> Resources:
    return Resources(left.cpu_milli + right.cpu_milli, left.memory + right.memory)


def _larger(left: Resources, right: Resources) -> Resources:
    return Resources(max(left.cpu_milli, right.cpu_milli), max(left.memory, right.memory))
