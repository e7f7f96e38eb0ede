from rollout.gather.cluster import wire
from rollout.gather.cluster.listing import ReadIfAllowed, read_if_allowed, read_list
from rollout.model.cluster import Job
from rollout.model.timestamps import parse_timestamp
from rollout.ports import ClusterApi

JOBS = "/apis/batch/v1/jobs"
_CRON_JOB = "CronJob"
_UNSEEN_WARNING = "Jobs cannot be listed, so the plan does not know how long their pods will run"


class _JobSpec(wire.Wire, frozen=True):
    active_deadline_seconds: int | None = None


class _JobStatus(wire.Wire, frozen=True):
    start_time: str = ""
    completion_time: str = ""


class _Job(wire.Object, frozen=True):
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()


def read_jobs(api: ClusterApi) -> ReadIfAllowed[Job]:
    return read_if_allowed(lambda: read_list(api, JOBS, _Job, _job).items, _UNSEEN_WARNING)


def _job(wire_job: _Job) -> Job:
    owners = wire_job.metadata.owner_references
    cron_job = next((owner.uid for owner in owners if owner.kind == _CRON_JOB), "")
    return Job(
        uid=wire_job.metadata.uid,
        cron_job=cron_job,
        started_at=wire_job.status.start_time,
        deadline_seconds=wire_job.spec.active_deadline_seconds,
        took_seconds=_seconds_taken(wire_job.status),
    )


def _seconds_taken(status: _JobStatus) -> int | None:
    began = parse_timestamp(status.start_time)
    ended = parse_timestamp(status.completion_time)
    if began is None or ended is None:
        return None
    return round((ended - began).total_seconds())
