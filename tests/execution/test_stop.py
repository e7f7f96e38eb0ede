"""A stop that somebody wishes, or that comes by itself."""

from datetime import datetime

from rollout.adapters.clock import SystemClock
from rollout.execution.base.deadline import Deadline
from rollout.execution.base.stop import StopRequest, TimedStop


class SetClock(SystemClock):
    seconds = 0.0

    def now(self) -> datetime:
        raise AssertionError("no wall clock is asked")

    def monotonic(self) -> float:
        return self.seconds


def test_time_that_is_up_stops_and_says_why() -> None:
    clock = SetClock()
    stop = TimedStop(Deadline(clock, 60), StopRequest(), revert=True)
    assert (stop.requested, stop.reverting, stop.wait(0)) == (False, False, False)
    clock.seconds = 60
    assert (stop.requested, stop.reverting, stop.wait(1000), stop.asked) == (True, True, True, False)
    assert "--active-deadline" in stop.why


def test_a_wish_for_the_end_of_the_process_is_one_for_its_run() -> None:
    ending = StopRequest()
    stop = TimedStop(None, ending)
    assert not stop.requested
    ending.request()
    assert (stop.requested, stop.asked, stop.why) == (True, True, "stopped on request")
