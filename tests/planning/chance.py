"""What no plan knows, and so differs from one run of a rollout to the next."""

from collections.abc import Sequence
from random import Random

from rollout.lab.api.resources import CLUSTERS, DEPLOYMENTS, REPLICASETS, STATEFULSETS
from rollout.lab.api.store import Json
from rollout.lab.objects import spec_of, with_metadata, with_spec
from rollout.lab.world.placement import NodeRoom
from tests.lab.world.simulation import Simulation

STARTUP = "lab.node-rollout.dev/startup-seconds"


def leave_to_chance(sim: Simulation, seed: int) -> None:
    """Let vary what no plan knows: which of equal nodes takes a pod, which of equal pods a restart
    ends first, and up to five seconds of each workload's starts.
    """
    random = Random(seed)  # noqa: S311 - reproducible, not secret
    sim.world.cluster.rng.seed(seed)
    scheduler = sim.world._scheduler
    best = scheduler._best

    def best_of_shuffled(pod: Json, feasible: Sequence[NodeRoom]) -> NodeRoom:
        return best(pod, random.sample(feasible, len(feasible)))

    scheduler._best = best_of_shuffled  # type: ignore[method-assign]
    for resource in (DEPLOYMENTS, REPLICASETS, STATEFULSETS, CLUSTERS):
        for owner in list(sim.store.items(resource)):
            template = spec_of(owner)["template"]
            annotations = template["metadata"].get("annotations") or {}
            if STARTUP in annotations:
                seconds = max(1, float(annotations[STARTUP]) + random.uniform(-5, 5))
                changed = {**annotations, STARTUP: str(seconds)}
                template = with_metadata(template, annotations=changed)
                sim.store.put(resource, with_spec(owner, template=template))
