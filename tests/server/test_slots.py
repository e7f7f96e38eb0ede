"""The slots as a server knows them."""

from rollout.adapters.clock import SystemClock
from rollout.model.fleetlock import Slot, Slots
from rollout.server.state import SlotBook
from tests.execution.fake_cluster import FakeCluster, FakeServer

SLOT = Slot("default", "a", "uid-a", "id", "fleetlock-a", "2026-11-23T01:00:00Z", "b1")


def test_a_change_is_not_hidden_by_a_look_that_began_before_it_was_written() -> None:
    book = SlotBook(FakeCluster(FakeServer()), SystemClock(), "kube-system")

    def take(slots: Slots) -> Slots:
        assert book.read() == slots
        return slots.with_slot(SLOT)

    assert book.change(take).nodes == book.seen(60).nodes == book.latest.nodes == {"a"}
