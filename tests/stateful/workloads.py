"""Workloads that a drain has to move with care, and how they behave on one cluster."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from hypothesis import strategies as st

from rollout.lab.api.lifecycle import with_defaults
from rollout.lab.api.resources import DEPLOYMENTS, PODS
from rollout.lab.api.store import Json
from rollout.lab.lab import Lab
from rollout.lab.objects import LAB_PREFIX, status_of, with_spec
from rollout.lab.scenario import Scenario, ScenarioBudget, ScenarioWorkload, WorkloadKind
from rollout.model.policy import CompletionFallback
from tests.apply.test_databases import database_workload

DATABASE = "orders"
REPLICA = "ledger"
JOB_LABEL = "job-name"
# How long a drain waits for Jobs, in real seconds.
JOB_SECONDS = 3
# A drain waits for four minutes, in simulated seconds: the operator moves the primary soon, slowly
# or never.
_SWITCHOVERS = ("5", "20", "150", "never")
_STARTUPS = ("10", "120")
# The Jobs complete before a drain waits for them, meanwhile, or too late.
_JOB_RUNS = ("100", "400", "4000")
_JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train"}
# The old pod would end before the new one is ready.
_WITHOUT_SURGE = {
    "type": "RollingUpdate",
    "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
}


@dataclass(frozen=True)
class Workloads:
    """How the workloads of one cluster behave; times are simulated seconds.

    `switchover` is how long the database's operator takes to move the primary after a cordon, or
    `never`. `surges`: a restart of the single replica starts the new pod first, which takes
    `startup`. `job_run` is how long Jobs run.
    """

    switchover: str
    startup: str
    surges: bool
    job_run: str
    fallback: CompletionFallback

    def added_to(self, scenario: Scenario) -> Scenario:
        added = (database_workload(DATABASE, self.switchover), self._single_replica(), self._jobs())
        return msgspec.structs.replace(scenario, workloads=(*scenario.workloads, *added))

    def _single_replica(self) -> ScenarioWorkload:
        return ScenarioWorkload(
            kind=WorkloadKind.DEPLOYMENT,
            name=REPLICA,
            namespace="shop",
            lab={"startup-seconds": self.startup},
            budget=ScenarioBudget(min_available=1),
        )

    def _jobs(self) -> ScenarioWorkload:
        return ScenarioWorkload(
            kind=WorkloadKind.POD,
            name="train",
            namespace="ml",
            replicas=2,
            spread="kubernetes.io/hostname",
            owner=_JOB,
            labels={JOB_LABEL: "train"},
            lab={"run-seconds": self.job_run},
        )

    def set_strategy(self, lab: Lab) -> None:
        """Set the update strategy of the single replica, which no scenario has."""
        if not self.surges:
            lab.call(
                lambda: lab.store.put(
                    DEPLOYMENTS, with_spec(replica_deployment(lab), strategy=_WITHOUT_SURGE)
                )
            )

    @property
    def flags(self) -> Iterable[str]:
        """Return flags for the drains.

        If no restart helps the single replica, its node is drained all the same.
        """
        blocked = ("--skip", "blocked") if self.surges else ("--allow", "blocked")
        return (
            *("--set", f"drain.wait-for-completion={JOB_LABEL}"),
            *("--set", f"drain.wait-for-completion-timeout={JOB_SECONDS}s"),
            *("--set", f"drain.wait-for-completion-fallback={self.fallback}"),
            *("--set", "drain.restart=blocked"),
            *blocked,
        )


WORKLOADS = st.builds(
    Workloads,
    switchover=st.sampled_from(_SWITCHOVERS),
    startup=st.sampled_from(_STARTUPS),
    surges=st.sampled_from((True, True, False)),
    job_run=st.sampled_from(_JOB_RUNS),
    fallback=st.sampled_from(CompletionFallback),
)


def start_job(lab: Lab, number: int, seconds: int) -> None:
    """Start another pod of a Job, which runs for so many simulated seconds; in the lab's loop."""
    metadata = {
        "name": f"train-late-{number}",
        "namespace": "ml",
        "labels": {JOB_LABEL: "train"},
        "annotations": {f"{LAB_PREFIX}run-seconds": str(seconds)},
        "ownerReferences": [{**_JOB, "uid": "uid-of-train", "controller": True}],
    }
    spec = {"containers": [{"name": "app", "image": "registry.example/app:1.0"}]}
    lab.store.create(PODS, with_defaults(PODS, {"metadata": metadata, "spec": spec}))


def replica_deployment(lab: Lab) -> Json:
    """Return the Deployment of the single replica; in the lab's loop."""
    deployment = lab.store.get(DEPLOYMENTS, REPLICA, "shop")
    assert deployment is not None
    return deployment


def is_rolled_out(lab: Lab) -> bool:
    """Whether the single replica is of the newest template and ready, and no other pod is left."""
    status = status_of(lab.call(lambda: replica_deployment(lab)))
    counts = (status["updatedReplicas"], status["readyReplicas"], status["replicas"])
    return counts == (1, 1, 1)
