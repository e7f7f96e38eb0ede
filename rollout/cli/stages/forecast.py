from contextlib import suppress
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from rollout.cli import wiring
from rollout.cli.settings.schema import Settings
from rollout.cli.stages.cluster import read_memory
from rollout.cli.stages.observers import send_note
from rollout.cli.terminal import say
from rollout.errors import ApiError
from rollout.execution.record.memory import change_memory
from rollout.model.memory import Memory, MissedDeadline
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy
from rollout.model.timestamps import parse_timestamp, timestamp
from rollout.planning.eligibility.windows import Schedule
from rollout.planning.plan.finish_by import Finish, finish_date
from rollout.ports import ClusterApi
from rollout.report.notifications import missed_deadline_note


def forecast_and_report_lateness(
    api: ClusterApi, settings: Settings, plan: RolloutPlan, policy: Policy, *, covers_all: bool
) -> float | None:
    """Return by how many seconds all nodes will miss the deadline.

    0 if in time, infinity for more than two years. None without a deadline, or if the plan is in
    time but does not cover all pending nodes. Warns if late, and notifies once for each deadline.
    """
    memory = read_memory(api, settings.lock.namespace)
    deadline = parse_timestamp(settings.operate.finish_by)
    if deadline is None:
        _store_missed_deadline(api, settings, memory, missed=None)
        return None
    now = wiring.now()
    schedule = Schedule.of(policy.gates.windows)
    # None: the windows of the next two years are too short.
    end = finish_date(plan, schedule, _earliest_start(memory, now))
    is_late = end is None or end > deadline
    if plan.waves and is_late:
        # A limit of 0 is never shown.
        late = Finish(limit=0, plan=plan, at=end)
        missed = _report_missed_deadline(settings, late, memory, now)
        _store_missed_deadline(api, settings, memory, missed=missed)
        return (end - deadline).total_seconds() if end else float("inf")
    if not covers_all:
        # Other nodes may still be late, so keep a stored delay.
        return None
    _store_missed_deadline(api, settings, memory, missed=None)
    return 0


def _store_missed_deadline(
    api: ClusterApi, settings: Settings, memory: Memory, *, missed: MissedDeadline | None
) -> None:
    if memory.missed_deadline != missed:
        with suppress(ApiError):
            change_memory(api, settings.lock.namespace, partial(replace, missed_deadline=missed))


def _earliest_start(memory: Memory, now: datetime) -> datetime:
    pause_end = parse_timestamp(memory.pause.until) if memory.pause else None
    return max(now, pause_end or now)


def _report_missed_deadline(
    settings: Settings, late: Finish, memory: Memory, now: datetime
) -> MissedDeadline:
    finish_by = settings.operate.finish_by
    since = timestamp(now)
    has_notified = False
    stored = memory.missed_deadline
    if stored and stored.by == finish_by:
        # The pass that stored this deadline has notified.
        has_notified = True
        since = stored.since
    finish = timestamp(late.at) if late.at else ""
    missed = MissedDeadline(finish_by, finish=finish, since=since)
    say(f"warning: {missed}; {late.slowest_wave}")
    if not has_notified:
        deadline = parse_timestamp(finish_by)
        is_over = deadline is not None and deadline <= now
        command = "rollout plan" if is_over else f"rollout plan --finish-by {finish_by}"
        send_note(missed_deadline_note(missed, late.slowest_wave, command), settings)
    return missed
