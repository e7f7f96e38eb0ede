"""A copy of the cluster in a file, to be rehearsed on: `plan --snapshot`, `lab up --like`."""

import secrets
from collections.abc import Mapping

from rollout.cli.stages.journal import past_runs
from rollout.cli.stages.session import Gathered
from rollout.gather.cluster.copying import CopiedPace, copy_document
from rollout.gather.cluster.snapshot import Kept
from rollout.model.policy import Policy
from rollout.planning.play.pace import Pace

_KEY_BYTES = 32


def cluster_copy(gathered: Gathered, kept: Kept, policy: Policy, *, anonymous: bool) -> bytes:
    """Return what a plan by these rules was made of; `anonymous`: by a key that is forgotten here."""
    key = secrets.token_bytes(_KEY_BYTES) if anonymous else b""
    return copy_document(kept, gathered.targets.observations, _pace(gathered, policy), key)


def _pace(gathered: Gathered, policy: Policy) -> CopiedPace:
    snapshot = gathered.snapshot
    pace = Pace.of(snapshot.nodes, past_runs(snapshot.identity), snapshot.pods)
    graces: dict[str, int] = {}
    for pod in snapshot.pods:
        # those that belong to their node come back with it: that is part of its reboot
        if pod.owner and pod.owner.kind not in ("DaemonSet", "Node"):
            grace = policy.drain.grace_of(pod.grace_period)
            graces[pod.owner.uid] = max(grace, graces.get(pod.owner.uid, 0))
    return CopiedPace(pace.reboot(0, 1), _owners(pace, graces))


def _owners(pace: Pace, graces: Mapping[str, int]) -> Mapping[str, tuple[int, int]]:
    return {uid: (pace.ending_of((uid,), grace), pace.starting((uid,))) for uid, grace in graces.items()}
