"""The date by which `operate` is to be done: each pass holds its forecast against it, and tells once that it slips."""

from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from rollout.cli import wiring
from rollout.cli.stages import gather
from rollout.cli.stages.metrics import Meter
from rollout.cli.stages.notify import News, tell
from rollout.cli.stages.session import Session
from rollout.cli.terminal import say
from rollout.errors import ApiError
from rollout.execution.record.memory import change_memory
from rollout.model.memory import Memory, Slip, moment
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
    if date is None:
        _remember(session, memory, None)
        return
    at = finish(plan, Schedule.of(session.policy.gates.windows), _begin(memory, now))
    late = (at - date).total_seconds() if at else float("inf")
    if not plan.waves or late <= 0:
        if is_all:
            meter.observe_lateness(0)
            _remember(session, memory, None)
        return
    meter.observe_lateness(late)
    before = memory.slip if memory.slip and memory.slip.by == written else None
    slip = Slip(written, timestamp(at) if at else "", before.since if before else timestamp(now))
    obstacle = Finish(0, plan, at).obstacle
    say(f"warning: {slip}; {obstacle}")
    if before is None:
        _tell(session, slip, obstacle, is_over=date <= now)
    _remember(session, memory, slip)


def _begin(memory: Memory, now: datetime) -> datetime:
    """When the first node might be begun: a pause without an end may end at any time."""
    until = moment(memory.pause.until) if memory.pause else None
    return max(now, until or now)


def _remember(session: Session, memory: Memory, slip: Slip | None) -> None:
    if memory.slip != slip:
        with suppress(ApiError):
            change_memory(session.api, session.namespace, lambda standing: replace(standing, slip=slip))


def _tell(session: Session, slip: Slip, obstacle: str, *, is_over: bool) -> None:
    news = session.news or News()
    if news.slipped_from != slip.by:
        news.slipped_from = slip.by
        command = "rollout plan" if is_over else f"rollout plan --finish-by {slip.by}"
        tell(slipped(slip, obstacle, command), session.settings)
