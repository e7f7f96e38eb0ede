"""The agenda, with time that stands still and with time that really passes."""

import asyncio
import time

import pytest

from rollout.lab.clock import LabClock, ManualClock
from rollout.lab.world.agenda import Agenda


def test_work_asked_for_twice_is_done_once() -> None:
    agenda, done = Agenda(ManualClock()), list[str]()
    for _ in range(3):
        agenda.soon(done.append, "a")
        agenda.later(1, done.append, "b")
    agenda.advance(2)
    assert done == ["a", "b"]


def test_timers_run_in_order_of_their_time() -> None:
    clock = ManualClock()
    agenda, done = Agenda(clock), list[tuple[str, float]]()
    for name, seconds in (("c", 3), ("a", 1), ("b", 2)):
        agenda.after(seconds, lambda name=name: done.append((name, clock.monotonic())))
    agenda.advance(2.5)
    assert done == [("a", 1), ("b", 2)]
    agenda.advance(1)
    assert done[-1] == ("c", 3)


def test_settling_runs_delays_but_no_deadlines() -> None:
    agenda, done = Agenda(ManualClock()), list[str]()
    agenda.after(5, lambda: agenda.after(7, done.append, "twice removed"))
    agenda.after(1, done.append, "deadline", settles=False)
    agenda.repeat(1, lambda: done.append("beat"))
    agenda.settle()
    assert done == ["twice removed"]
    agenda.advance(2)
    assert done == ["twice removed", "deadline", "beat", "beat"]


def test_what_recurs_catches_up_in_order_when_the_process_was_held_up() -> None:
    clock = ManualClock()
    agenda, seen = Agenda(clock), list[tuple[str, float]]()
    agenda.repeat(10, lambda: seen.append(("beat", agenda.time)))
    agenda.repeat(5, lambda: seen.append(("look", agenda.time)))
    clock.move_to(20)
    agenda.advance(0)
    assert seen == [("look", 5), ("beat", 10), ("look", 10), ("look", 15), ("beat", 20), ("look", 20)]


def test_only_a_manual_clock_can_be_moved() -> None:
    with pytest.raises(TypeError):
        Agenda(LabClock()).advance(1)


def test_running_lets_time_pass_at_the_clock_s_speed() -> None:
    agenda, done = Agenda(LabClock(speed=100)), list[str]()

    async def run() -> float:
        began = time.monotonic()
        task = asyncio.create_task(agenda.run())
        await asyncio.sleep(0)
        agenda.after(10, done.append, "ten")
        agenda.after(20, agenda.stop)
        await asyncio.wait_for(task, 60)
        return time.monotonic() - began

    took = asyncio.run(run())
    assert done == ["ten"]
    assert 0.2 <= took < 15


def test_work_arriving_from_the_loop_wakes_a_sleeping_agenda() -> None:
    agenda, done = Agenda(LabClock()), list[str]()

    async def run() -> None:
        task = asyncio.create_task(agenda.run())
        await asyncio.sleep(0.05)
        agenda.soon(done.append, "at once")
        await asyncio.sleep(0.05)
        assert done == ["at once"]
        agenda.stop()
        await asyncio.wait_for(task, 60)

    asyncio.run(run())


def test_a_clock_knows_how_long_ago_a_timestamp_was_given() -> None:
    clock = ManualClock()
    moment = clock.now()
    clock.move_to(90)
    assert clock.age(moment) == 90
    assert LabClock(speed=4).scaled(10) == 2.5
    with pytest.raises(ValueError, match="positive"):
        LabClock(0)
