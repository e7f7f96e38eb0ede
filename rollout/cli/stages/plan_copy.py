"""A copy of what a plan was made from, for `rollout lab up --like`."""

import secrets

from rollout.gather.cluster.copying import CopiedPace, copy_document
from rollout.gather.cluster.snapshot import CachedPages
from rollout.planning.plan.build import PlanInputs
from rollout.planning.play.pace import Pace


def cluster_copy(inputs: PlanInputs, answers: CachedPages, *, anonymous: bool) -> bytes:
    """Return a document of the API server's answers and of the pace at which this cluster reboots.

    `anonymous` hides names and labels by a key that nobody keeps.
    """
    key = secrets.token_bytes(32) if anonymous else b""
    snapshot = inputs.snapshot
    pace = Pace.of(snapshot.nodes, inputs.past, snapshot.pods)
    graces: dict[str, int] = {}
    for pod in snapshot.pods:
        # Pods that belong to their node return with it, as part of its reboot.
        if pod.owner and pod.owner.kind not in ("DaemonSet", "Node"):
            grace = inputs.policy.drain.grace_of(pod.grace_period)
            graces[pod.owner.uid] = max(grace, graces.get(pod.owner.uid, 0))
    owners = {
        uid: (pace.ending_of((uid,), grace), pace.starting((uid,))) for uid, grace in graces.items()
    }
    copied = CopiedPace(pace.reboot(0, 1), owners)
    return copy_document(answers, inputs.observations, copied, key)
