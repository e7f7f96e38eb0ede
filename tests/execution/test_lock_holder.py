"""Whether whoever holds the lock is alive: the Lease says how long that takes to see, and no clock
but ours.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from rollout.adapters.kube.api import KubeApi, Timeouts, connect
from rollout.execution.lease import (
    HolderState,
    Lease,
    LeaseState,
    LeaseWatch,
    LockSnapshot,
    await_renewal,
    locked_error,
    read_lease,
    unlock_commands,
)
from rollout.execution.lock import _conflict_error
from rollout.gather.cluster.decode import decode
from rollout.gather.doctor.cluster import lock_check
from rollout.model.fleetlock import NO_SLOTS
from rollout.report.fleetlock import slots_text
from rollout.report.unfinished import no_run_text
from tests.execution.simulated import SetClock
from tests.standalone_api import standalone_api

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LEASE = f"{LEASES}/node-rollout"
# As far from ours as another machine's clock may be.
ELSEWHERE = "2099-01-01T00:00:00.000000Z"


class Passing(SetClock):
    """Time as the command has it, passing only while it sleeps; somebody renews the Lease at a
    moment of it.
    """

    def __init__(self, api: KubeApi, renewed_at: float | None = None) -> None:
        super().__init__()
        self.api = api
        self.renewed_at = renewed_at

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.renewed_at is not None and self.seconds >= self.renewed_at:
            self.renewed_at = None
            lease = json.loads(self.api.get(LEASE))
            lease["spec"]["renewTime"] = ELSEWHERE
            self.api.replace(LEASE, lease)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApi]:
    with standalone_api(tmp_path_factory.mktemp("api")) as running:
        yield connect(running.kubeconfig, None, timeouts=Timeouts(connect=5, read=20))


@pytest.fixture
def api(server: KubeApi) -> Iterator[KubeApi]:
    yield server
    server.delete(LEASE)


def hold(api: KubeApi, seconds: int | None, holder: str = "ann") -> None:
    spec = {
        "holderIdentity": holder,
        "renewTime": "2001-01-01T00:00:00.000000Z",
        "leaseDurationSeconds": seconds,
    }
    api.create(LEASES, {"metadata": {"name": "node-rollout"}, "spec": spec})


def looked(api: KubeApi, renewed_at: float | None = None) -> tuple[bool, float]:
    """What came of it, and how long it took."""
    passing = Passing(api, renewed_at)
    watch = LeaseWatch(passing)
    state = await_renewal(watch, lambda: read_lease(api, "kube-system"), lambda _message: None)
    return state is HolderState.ALIVE, passing.seconds


FOREIGN = "\x1b[2Jbob\u202e\nroot@node-7/" + "9" * 5000


def assert_short_and_safe(text: str) -> None:
    assert "bob" in text
    assert "root@node-7" in text
    assert len(text) < 400
    assert text.isprintable()


def foreign_texts() -> dict[str, str]:
    """What people read about a Lease that another program holds."""
    lease = LeaseState(FOREIGN, "1", 10)
    snapshot = LockSnapshot(lease)
    wire_lease = decode(
        json.dumps({"metadata": {"name": "x"}, "spec": {"holderIdentity": FOREIGN}}).encode(),
        Lease,
        "",
    )
    return {
        "refusal": locked_error(lease, "kube-system").message,
        "conflict": _conflict_error(wire_lease).message,
        "status": no_run_text(snapshot, None),
        "doctor of a living one": lock_check("x", FOREIGN, holder_is_alive=True).message,
        "doctor of a dead one": lock_check("x", FOREIGN, holder_is_alive=False).message,
        "slots": slots_text(NO_SLOTS, {}, FOREIGN, None).splitlines()[-1],
    }


@pytest.mark.parametrize("place", foreign_texts())
def test_a_foreign_holder_is_shown_short_and_without_control_characters(place: str) -> None:
    assert_short_and_safe(foreign_texts()[place])


def test_the_wait_for_a_foreign_holder_names_it_short(api: KubeApi) -> None:
    hold(api, 30, FOREIGN)
    notices: list[str] = []
    watch = LeaseWatch(Passing(api))
    await_renewal(watch, lambda: read_lease(api, "kube-system"), notices.append)
    assert_short_and_safe(notices[0])


def test_a_foreign_run_is_no_part_of_a_command() -> None:
    lease = LeaseState("ann", "1", 10, run_id="x; reboot")
    assert (
        unlock_commands(lease, "kube-system") == "kubectl -n kube-system delete lease node-rollout"
    )


@pytest.mark.parametrize(
    ("seconds", "longest"), [(1, 3), (3, 3.5), (30, 12), (None, 12), (120, 42.5), (600, 202.5)]
)
def test_a_dead_one_is_watched_for_as_long_as_its_renewal_could_take(
    seconds: int | None, longest: float, api: KubeApi
) -> None:
    hold(api, seconds)
    alive, took = looked(api)
    assert not alive
    assert (seconds or 30) / 3 < took <= longest


@pytest.mark.parametrize(("seconds", "renewed_at"), [(3, 1), (30, 10), (120, 40), (600, 200)])
def test_a_living_one_is_seen_at_its_next_renewal(
    seconds: int, renewed_at: float, api: KubeApi
) -> None:
    hold(api, seconds)
    assert looked(api, renewed_at) == (True, renewed_at)


def test_a_watch_tells_a_living_holder_from_one_that_is_gone() -> None:
    clock = SetClock()
    watch = LeaseWatch(clock)
    assert watch.observe(LeaseState("", "1", 0)) is HolderState.NOBODY
    assert watch.observe(LeaseState("ann", "2", 10)) is HolderState.UNKNOWN
    clock.seconds = 29
    assert watch.observe(LeaseState("ann", "3", 10)) is HolderState.ALIVE
    clock.seconds = 58.9
    assert watch.observe(LeaseState("ann", "3", 10)) == HolderState.ALIVE
    assert watch.expired_version is None
    clock.seconds = 59
    assert watch.observe(LeaseState("ann", "3", 10)) == HolderState.GONE
    assert watch.expired_version == "3"
    assert watch.observe(LeaseState("bob", "4", 10)) == HolderState.UNKNOWN
    assert watch.expired_version is None
    clock.seconds = 200
    assert watch.state is HolderState.GONE
    assert watch.observe(LeaseState("", "5", 10)) is HolderState.NOBODY


def test_a_renewal_that_is_young_by_the_servers_clock_is_a_sign_of_life_at_once_and_an_old_one_none_of_death() -> (
    None
):
    clock = SetClock()
    for ago, state in [
        (6, HolderState.ALIVE),
        (13, HolderState.UNKNOWN),
        (3600, HolderState.UNKNOWN),
    ]:
        lease = LeaseState("ann", str(ago), 10, written=NOW - timedelta(seconds=ago))
        assert LeaseWatch(clock).observe(lease, NOW) is state
    by_its_own_clock = LeaseState("ann", "1", 10, renewed=NOW)
    assert LeaseWatch(clock).observe(by_its_own_clock, NOW) is HolderState.UNKNOWN


def test_a_process_of_this_machine_that_ends_while_it_is_watched_is_gone_at_once() -> None:
    ended = list[str]()
    watch = LeaseWatch(SetClock(), lambda lease: lease.process in ended)
    lease = LeaseState("ann@here/1", "1", 10, process="p")
    assert watch.observe(lease, NOW) is HolderState.UNKNOWN
    ended.append("p")
    assert watch.observe(lease) == HolderState.GONE
    assert watch.expired_version == "1"


NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def glanced(ago: float, *, one_clock: bool, has_ended: bool = False) -> LockSnapshot:
    """One look at a Lease of 30 s that was renewed so many seconds ago, by the server's clock or by
    the holder's.
    """
    at = NOW - timedelta(seconds=ago)
    lease = LeaseState("ann", "1", 10.0, renewed=at, written=at if one_clock else None)
    return LockSnapshot(lease, NOW, has_ended=has_ended)


@pytest.mark.parametrize(
    ("ago", "one_clock", "alive"),
    [
        (0, True, True),
        (12, True, True),
        (13, True, None),
        (32, True, None),
        (33, True, False),
        # a holder whose clock is late is alive all the same
        (33, False, None),
        (86400, False, None),
        (-3600, False, True),
    ],
)
def test_one_look_calls_nobody_dead_who_may_still_renew_the_lock(
    ago: float, *, one_clock: bool, alive: object
) -> None:
    assert glanced(ago, one_clock=one_clock).alive is alive


def test_one_look_is_enough_where_nobody_holds_it_or_the_process_has_ended_here() -> None:
    assert LockSnapshot(LeaseState("", "1", 0.0), NOW).alive is False
    assert glanced(0, one_clock=True, has_ended=True).alive is False
    assert LockSnapshot(LeaseState("ann", "1", 10.0), NOW).alive is None
