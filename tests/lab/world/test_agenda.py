"""The agenda, with time that stands still and with time that really passes."""

from rollout.lab.clock import ManualClock
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
