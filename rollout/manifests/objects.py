"""Every object of an installation, in the order in which they are to be created."""

from collections.abc import Iterator, Sequence
from typing import assert_never

from rollout.manifests.fleetlock import fleetlock_objects
from rollout.manifests.installation import DEFAULT_NAME, Installation, Json, Kind
from rollout.manifests.network import network_policy
from rollout.manifests.pod import METRICS_PORT_NAME, config_name, labels, pod_template, settings_data
from rollout.manifests.roles import bindings, roles

# Every cluster has them: others live there, too.
_OTHERS = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
_WEEK = 7 * 24 * 3600
# From when the Job is created: its pod has to be scheduled, and the image pulled.
_START_SECONDS = 600


def objects(installation: Installation) -> Sequence[Json]:
    """All of them; of `roles` the roles alone."""
    access = installation.access
    if installation.kind is Kind.ROLES:
        return roles(access)
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(installation),
        # the pod asks for its token itself: another that merely names the account gets none
        "automountServiceAccountToken": False,
    }
    return (
        *_namespace(installation),
        account,
        *roles(access),
        *bindings(access),
        config_map(installation),
        *_workload(installation),
    )


def config_map(installation: Installation) -> Json:
    """What the pod reads that is no secret."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**_metadata(installation), "name": config_name(installation)},
        "data": {**settings_data(installation), **{file.key: file.text for file in installation.files.carried}},
    }


def _workload(installation: Installation) -> Iterator[Json]:
    """What starts the pod, and what stands before it."""
    if installation.kind is not Kind.FLEETLOCK:
        port = METRICS_PORT_NAME if installation.listen.is_reachable else ""
        yield network_policy(installation, _metadata(installation), port)
    match installation.kind:
        case Kind.CRONJOB:
            yield _cron_job(installation)
        case Kind.JOB:
            yield {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": _metadata(installation),
                "spec": _job_spec(installation),
            }
        case Kind.DEPLOYMENT:
            yield _deployment(installation)
        case Kind.FLEETLOCK:
            yield from fleetlock_objects(installation, _metadata(installation))
        case Kind.ROLES:
            raise ValueError("roles have no workload")
        case _:
            assert_never(installation.kind)


def _namespace(installation: Installation) -> Iterator[Json]:
    """One of our own is restricted; what else runs in another is nobody's business here."""
    namespace = installation.access.namespace
    if namespace in _OTHERS:
        return
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"} if namespace == DEFAULT_NAME else {}
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": restricted}}


def _metadata(installation: Installation) -> Json:
    access = installation.access
    return {"name": access.name, "namespace": access.namespace, "labels": labels(installation)}


def _job_spec(installation: Installation) -> Json:
    return {
        # What went wrong is to be looked at, not tried again; a pod that was evicted or preempted did nothing wrong:
        # the next one takes up what it left.
        "backoffLimit": 0,
        "podFailurePolicy": {
            "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        },
        "activeDeadlineSeconds": installation.times.deadline + _START_SECONDS,
        "ttlSecondsAfterFinished": _WEEK,
        "template": pod_template(installation),
    }


def _cron_job(installation: Installation) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": _metadata(installation),
        "spec": {
            "schedule": installation.times.schedule,
            "timeZone": installation.times.time_zone,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": _START_SECONDS,
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {"metadata": {"labels": labels(installation)}, "spec": _job_spec(installation)},
        },
    }


def _deployment(installation: Installation) -> Json:
    """Two, of whom one acts: the Lease says which. A pod that is replaced finishes its nodes beside the new one."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(installation),
        "spec": {
            "replicas": 2,
            "revisionHistoryLimit": 3,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "selector": {"matchLabels": labels(installation)},
            "template": pod_template(installation),
        },
    }
