"""The date by which `operate` is to be done: each pass holds its forecast against it, and tells once that it slips."""

from contextlib import suppress
from dataclasses import replace

from rollout.cli import wiring
from rollout.cli.stages import gather
from rollout.cli.stages.metrics import Meter
from rollout.cli.stages.notify import tell
from rollout.cli.stages.session import Session
from rollout.cli.terminal import say
from rollout.errors import ApiError
from rollout.execution.record.memory import change_memory
from rollout.model.memory import Slip, moment
from rollout.model.plan import RolloutPlan
from rollout.model.text import timestamp
from rollout.planning.eligibility.schedule import Schedule
from rollout.planning.plan.finish_by import Finish, finish
from rollout.report.notifications import slipped


def hold_to_date(session: Session, meter: Meter, plan: RolloutPlan, *, is_all: bool = True) -> None:
    """Tell that this plan is done too late, unless that was told of this date: the memory keeps that for later passes.

    A plan that is not all there is to do may be late, but does not show that the rest is in time.
    """
    date = moment(written := session.settings.operate.finish_by)
    memory, now = gather.read_memory(session, quiet=True), wiring.system_clock().now()
    # a pause without an end may end at any time
    begin = max(now, (moment(memory.pause.until) if memory.pause else None) or now)
    at = finish(plan, Schedule.of(session.policy.gates.windows), begin) if date else None
    slip: Slip | None = None
    if date and plan.waves and (at is None or at > date):
        before = memory.slip if memory.slip and memory.slip.by == written else None
        slip = Slip(written, timestamp(at) if at else "", before.since if before else timestamp(now))
        obstacle = Finish(0, plan, at).obstacle
        say(f"warning: {slip}; {obstacle}")
        if before is None:
            limit = "" if date <= now else f" --finish-by {written}"
            tell(slipped(slip, obstacle, f"rollout plan{limit}"), session.settings)
        meter.observe_lateness((at - date).total_seconds() if at else float("inf"))
    elif date and is_all:
        meter.observe_lateness(0)
    if memory.slip != slip and (slip or is_all or not date):
        with suppress(ApiError):
            change_memory(session.api, session.namespace, lambda standing: replace(standing, slip=slip))
