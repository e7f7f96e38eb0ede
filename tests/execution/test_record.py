"""What a run's record says of its waves, for the processes that resume the run."""

import pytest
from msgspec.structs import replace

from rollout.adapters.clock import SystemClock
from rollout.execution.base.deadline import PatientApi
from rollout.execution.record.record import (
    Health,
    RunRecord,
    StoredRecord,
    read_record,
    record_document,
)
from rollout.model.policy import Policy
from rollout.planning.plan.build import build_plan
from rollout.ports import ClusterApi
from tests.planning.builders import inputs, node

pytestmark = pytest.mark.in_memory
NAMESPACE = "kube-system"
RUN = "20260301-120000-abcdef"
READY = Health({}, frozenset(("w-1", "w-2")))


def run_record(api: ClusterApi) -> RunRecord:
    return RunRecord(PatientApi(api, SystemClock()), record_document(NAMESPACE), print)


def stored(api: ClusterApi) -> StoredRecord:
    found = read_record(api, NAMESPACE)
    assert found is not None
    assert not found.problem
    return found


def begun(api: ClusterApi) -> RunRecord:
    plan = build_plan(inputs([node("w-1"), node("w-2")]))
    record = run_record(api)
    record.write_or_defer(replace(plan, plan_id=RUN), "ann")
    return record


def test_the_last_wave_is_known_after_a_kill_and_after_an_end(api: ClusterApi) -> None:
    record = begun(api)
    assert stored(api).last_wave == 0
    record.store_health(3, READY)
    assert stored(api).last_wave == 3
    assert stored(api).health == READY
    record.end(complete=False)
    assert stored(api).last_wave == 3
    assert stored(api).health is None


def test_a_process_that_starts_no_wave_keeps_the_number(api: ClusterApi) -> None:
    begun(api).store_health(3, READY)
    resumed = run_record(api)
    resumed.take_up(RUN, Policy())
    assert stored(api).health == READY
    resumed.end(complete=False)
    assert stored(api).last_wave == 3


def test_the_number_is_written_even_if_the_health_is_too_large(api: ClusterApi) -> None:
    many = frozenset(f"worker-{number:0200}" for number in range(2000))
    begun(api).store_health(3, Health({}, many))
    assert stored(api).last_wave == 3
    assert stored(api).health is None
