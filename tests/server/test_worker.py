from types import SimpleNamespace
from typing import Any, cast

from rollout.adapters.clock import SystemClock
from rollout.execution.base.deadline import StopRequest
from rollout.model.fleetlock import Slot, Slots, SlotState
from rollout.ports import Event
from rollout.server.worker import Worker
from tests.execution.fake_cluster import FakeServer
from tests.server.in_memory import GROUP, Severed, context_of


class StopsAtFirstWait(SystemClock):
    def __init__(self, stop: StopRequest) -> None:
        super().__init__()
        self.stop = stop

    def wait(self, event: Event, seconds: float) -> bool:
        self.stop.request()
        return True


def test_an_outage_does_not_end_the_worker_while_the_node_of_a_failed_slot_is_gone() -> None:
    notices: list[str] = []
    api = Severed(FakeServer())
    context = context_of(api, 1, notices.append)
    stop = StopRequest()
    context.clock = StopsAtFirstWait(stop)
    context.nodes = cast("Any", SimpleNamespace(require_by_name=dict))
    worker = Worker(context, stop)
    failed = Slot(GROUP, "gone", "uid", "id", "fleetlock-1", "", "", state=SlotState.FAILED)
    worker._slots = Slots((failed,))
    api.dead = True
    worker.work_until_stopped()
    assert notices == ["the slots of FleetLock: this process is dead"]
