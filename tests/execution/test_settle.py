"""Settling: so many good looks in a row."""

from collections import Counter
from dataclasses import replace

import pytest

from rollout.adapters.clock import SystemClock
from rollout.execution.base.deadline import Deadline
from rollout.execution.base.patience import PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.execution.base.stop import StopRequest
from rollout.execution.record.stored import Health
from rollout.execution.rollout.settle import Look, Settler
from rollout.model.gates import GatePolicy
from rollout.model.policy import Policy
from rollout.model.progress import StepEvent
from rollout.model.quantity import Duration


class Silent:
    def notify(self, event: StepEvent) -> None:
        pass


class Looks(Settler):
    """Counts the looks, and finds the given ones bad."""

    bad: frozenset[int] = frozenset()
    looks = 0

    def look(self, deadline: Deadline | None = None) -> Look:
        Looks.looks += 1
        unready = {"n-1"} if Looks.looks in Looks.bad else set()
        return Look(frozenset(unready), lambda _node: Counter(), lambda was: was)


@pytest.mark.parametrize(("checks", "bad", "looks"), [(1, (), 1), (2, (), 2), (3, (), 3), (3, (1, 3), 6)])
def test_good_looks_have_to_follow_one_another(checks: int, bad: tuple[int, ...], looks: int) -> None:
    clock = SystemClock()
    report = Reporter(Silent(), clock)
    policy = Policy(settle_timeout=Duration(30), gates=replace(GatePolicy(), health_checks=checks))
    Looks.looks, Looks.bad = 0, frozenset(bad)
    settler = Looks(PatientApi(None, clock), report, policy)  # type: ignore[arg-type]
    assert settler.wait(Health({}, frozenset({"n-1"})), 1, frozenset(), StopRequest()) == ""
    assert Looks.looks == looks
