"""The lock on a real wire: who gets it, who is fenced, what outages do to it."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from rollout.adapters.clock import SystemClock
from rollout.adapters.kube.api import KubeApi, Timeouts, connect
from rollout.errors import (
    ApiConflictError,
    ApiUnavailableError,
    BlockedError,
    FencedError,
    InterruptedRunError,
    LockedError,
)
from rollout.execution.base.stop import StopRequest
from rollout.execution.lease import Glance, Holder, LeaseState, LeaseWatch, await_sign, glance, read_lease
from rollout.execution.lock import LeaseLock, LeaseTerms
from rollout.lab.api.faults import ApiFault, FaultAnswer
from tests.standalone_api import StandaloneApi, standalone_api
from tests.waiting import wait_until

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/node-rollout"


def lock(api: KubeApi, holder: str, *, seconds: int = 2, patience: float = 10.0) -> LeaseLock:
    return LeaseLock(api, SystemClock(), LeaseTerms("kube-system", holder, f"run-of-{holder}", seconds, patience))


def lease(api: KubeApi) -> dict[str, object]:
    found = json.loads(api.get(PATH))
    return {**found["spec"], "annotations": found["metadata"].get("annotations", {})}


def test_it_is_held_renewed_and_released(api: KubeApi) -> None:
    with lock(api, "ann") as held:
        first = lease(api)
        assert first["holderIdentity"] == "ann"
        assert first["annotations"] == {"node-rollout.dev/run": "run-of-ann"}
        held.check()
        wait_until(lambda: lease(api)["renewTime"] != first["renewTime"])
        assert lease(api)["acquireTime"] == first["acquireTime"]
    assert lease(api)["holderIdentity"] == ""


def test_a_second_one_is_refused_while_the_first_renews(api: KubeApi) -> None:
    with lock(api, "ann"), pytest.raises(BlockedError, match="a rollout is running on ann"), lock(api, "bob"):
        pass
    with lock(api, "bob"):
        assert lease(api)["holderIdentity"] == "bob"
        assert lease(api)["leaseTransitions"] == 1


def test_a_dead_holders_is_taken_though_others_write_beside_it(api: KubeApi) -> None:
    with lock(api, "ann"):
        dead = json.loads(api.get(PATH))
    api.replace(PATH, {**json.loads(api.get(PATH)), "spec": dead["spec"]})
    renewed, over = read_lease(api, "kube-system").written, threading.Event()

    def write() -> None:
        while not over.wait(0.05):
            api.patch(PATH, {"metadata": {"labels": {"at": str(time.monotonic_ns())}}}, {"fieldManager": "labeller"})

    def writes() -> set[str]:
        return {entry["time"] for entry in json.loads(api.get(PATH))["metadata"]["managedFields"]}

    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_until(lambda: len(writes()) > 1)
        assert read_lease(api, "kube-system").written == renewed
        with lock(api, "bob", seconds=3) as held:
            held.check()
            assert lease(api)["holderIdentity"] == "bob"
    finally:
        over.set()
        writer.join()


def test_one_that_is_not_renewed_is_taken_over_whatever_its_clock_said(api: KubeApi) -> None:
    with lock(api, "ann"):
        pass
    dead = json.loads(api.get(PATH))
    dead["spec"] |= {"holderIdentity": "ann", "leaseDurationSeconds": 1, "renewTime": "2099-01-01T00:00:00.000000Z"}
    api.replace(PATH, dead)
    started = time.monotonic()
    with lock(api, "bob") as held:
        held.check()
        assert time.monotonic() - started >= 1
        assert lease(api)["holderIdentity"] == "bob"


def test_a_stop_ends_the_wait_for_another_ones(api: KubeApi) -> None:
    """The wish comes just when it has begun to look on; a lease of ten minutes would otherwise be waited out."""
    hold_by_hand(api, "ann", seconds=600)
    stop, notices = StopRequest(), list[str]()

    def notice(message: str) -> None:
        notices.append(message)
        stop.request()

    terms = LeaseTerms("kube-system", "bob", "run-of-bob")
    with (
        pytest.raises(InterruptedRunError, match="nothing was started"),
        LeaseLock(api, SystemClock(), terms, stop=stop, notice=notice),
    ):
        pass
    told = "ann holds the lock: watching up to 10m for a renewal; where its process is surely gone: "
    assert notices == [f"{told}kubectl -n kube-system delete lease node-rollout"]
    assert lease(api)["holderIdentity"] == "ann"


def test_once_it_is_held_it_is_renewed_whoever_wishes_to_stop(api: KubeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes are finished after a stop. A renewal that meets a conflict, and then no server, is the longest way."""
    stop = StopRequest()
    terms = LeaseTerms("kube-system", "ann", "run-of-ann", seconds=1, patience=60)
    with LeaseLock(api, SystemClock(), terms, stop=stop) as held:
        stop.request()
        outages, get = [ApiUnavailableError("away"), ApiUnavailableError("away")], KubeApi.get

        def away_twice(asked: KubeApi, path: str) -> bytes:
            if outages:
                raise outages.pop()
            return get(asked, path)

        monkeypatch.setattr(KubeApi, "get", away_twice)
        end = time.monotonic() + 60
        while outages and time.monotonic() < end:
            with suppress(ApiConflictError):
                touch(api, get(api, PATH))
            time.sleep(0.05)
        assert not outages
        held.check()
        assert lease(api)["holderIdentity"] == "ann"


def touch(api: KubeApi, body: bytes) -> None:
    """Whoever has read it before meets a conflict."""
    found = json.loads(body)
    found["metadata"].setdefault("annotations", {})["touched"] = str(time.monotonic())
    api.replace(PATH, found)


def hold_by_hand(api: KubeApi, holder: str, *, seconds: int) -> None:
    with lock(api, holder):
        pass
    held = json.loads(api.get(PATH))
    held["spec"] |= {"holderIdentity": holder, "leaseDurationSeconds": seconds}
    api.replace(PATH, held)


def test_whoever_loses_it_is_fenced_and_leaves_it_alone(api: KubeApi) -> None:
    with lock(api, "ann") as held:
        stolen = json.loads(api.get(PATH))
        stolen["spec"]["holderIdentity"] = "bob"
        api.replace(PATH, stolen)
        with pytest.raises(FencedError, match="held by bob"):
            wait_for_a_fence(held)
    assert lease(api)["holderIdentity"] == "bob"


def test_an_outage_longer_than_the_lease_is_outwaited_before_the_next_act(api: KubeApi, server: StandaloneApi) -> None:
    told = list[BaseException]()
    terms = LeaseTerms("kube-system", "ann", "run-of-ann", seconds=1, patience=10)
    with LeaseLock(api, SystemClock(), terms, told.append) as held:
        server.outage(2.5)
        held.check()
        assert lease(api)["holderIdentity"] == "ann"
    assert {type(error) for error in told} == {ApiUnavailableError}


def wait_for_a_fence(held: LeaseLock) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        held.check()
        time.sleep(0.1)


GARBLED = [FaultAnswer.HTML, FaultAnswer.EMPTY, FaultAnswer.WRONG_KIND, FaultAnswer.TRUNCATED, FaultAnswer.BROKEN_OFF]


def inflict(server: StandaloneApi, fault: ApiFault) -> ApiFault:
    server.call(lambda: server.server.faults.add(fault))
    return fault


def struck(server: StandaloneApi, fault: ApiFault) -> int:
    return server.call(lambda: server.server.faults.struck(fault))


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("answer", GARBLED)
def test_no_answers_shape_ends_the_renewing(
    api: KubeApi, server: StandaloneApi, answer: FaultAnswer, *, done: bool
) -> None:
    told = list[BaseException]()
    terms = LeaseTerms("kube-system", "ann", "run-of-ann", seconds=1, patience=10)
    with LeaseLock(api, SystemClock(), terms, told.append) as held:
        fault = inflict(server, ApiFault(answer=answer, verb="update", resource="leases", requests=2, done=done))
        wait_until(lambda: struck(server, fault) == 2)
        renewed = lease(api)["renewTime"]
        wait_until(lambda: lease(api)["renewTime"] != renewed)
        held.check()
    assert told
    assert lease(api)["holderIdentity"] == ""


def test_not_even_a_failure_that_nobody_thought_of_ends_the_renewing(
    api: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures, replace = [RuntimeError("a bug"), RecursionError(), KeyError("x")], KubeApi.replace

    def fail(asked: KubeApi, path: str, body: object) -> bytes:
        if failures:
            raise failures.pop()
        return replace(asked, path, body)

    def tell(_error: BaseException) -> None:
        raise ValueError("nobody listens")

    terms = LeaseTerms("kube-system", "ann", "run-of-ann", seconds=1, patience=10)
    with LeaseLock(api, SystemClock(), terms, tell) as held:
        renewed = lease(api)["renewTime"]
        monkeypatch.setattr(KubeApi, "replace", fail)
        wait_until(lambda: not failures and lease(api)["renewTime"] != renewed)
        held.check()


def test_a_renewal_that_hangs_leaves_time_for_another(api: KubeApi, server: StandaloneApi) -> None:
    """Whoever watches for the whole duration sees a renewal, though one of them was never answered."""
    with lock(api, "ann", seconds=10) as held:
        fault = inflict(server, hung(requests=1))
        wait_until(lambda: struck(server, fault) == 1)
        with pytest.raises(BlockedError, match="a rollout is running on ann"), lock(api, "bob", seconds=10):
            pass
        held.check()
        assert lease(api)["holderIdentity"] == "ann"


def hung(requests: int) -> ApiFault:
    return ApiFault(answer=FaultAnswer.HANG, verb="update", resource="leases", requests=requests, delay=100_000)


@pytest.mark.parametrize("answer", [*GARBLED, FaultAnswer.HANG, FaultAnswer.TOO_MANY_REQUESTS, FaultAnswer.DROP])
def test_it_is_given_up_whatever_the_first_answer_to_that_is(
    api: KubeApi, server: StandaloneApi, answer: FaultAnswer
) -> None:
    with lock(api, "ann", seconds=4):
        inflict(server, ApiFault(answer=answer, verb="update", resource="leases", requests=1, delay=100_000, done=True))
    assert lease(api)["holderIdentity"] == ""


def test_whoever_has_watched_the_lock_gives_way_but_to_the_version_that_it_saw_go_stale(api: KubeApi) -> None:
    """What was planned before another held it fits no more; a holder that was seen to be gone is not waited for."""
    hold_by_hand(api, "ann", seconds=600)
    terms, clock = LeaseTerms("kube-system", "bob", "run-of-bob", 2, 10.0), Ahead()
    free, other, same = LeaseWatch(clock), LeaseWatch(clock), LeaseWatch(clock)
    other.look(LeaseState("eve", "1", 1.0))
    same.look(read_lease(api, "kube-system"))
    clock.seconds = 600
    for watch in (free, other):
        with pytest.raises(LockedError, match="ann has taken the lock meanwhile"):
            LeaseLock(api, SystemClock(), terms, watch=watch).__enter__()
    with LeaseLock(api, SystemClock(), terms, watch=same) as held:
        held.check()
        assert lease(api)["holderIdentity"] == "bob"


class Ahead(SystemClock):
    """A clock that a test puts forward."""

    seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.seconds


# Whether whoever holds the lock is alive: the Lease says how long that takes to see, and no clock but ours.


LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


LEASE = f"{LEASES}/node-rollout"


# As far from ours as another machine's clock may be.
ELSEWHERE = "2099-01-01T00:00:00.000000Z"


class Passing(SystemClock):
    """Time as the command has it, passing only while it sleeps; somebody renews the Lease at a moment of it."""

    def __init__(self, api: KubeApi, renewed_at: float | None = None) -> None:
        super().__init__()
        self.api = api
        self.renewed_at = renewed_at
        self.time = 0.0

    def now(self) -> datetime:
        raise AssertionError("clocks of two machines are never compared")

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        if self.renewed_at is not None and self.time >= self.renewed_at:
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
    spec = {"holderIdentity": holder, "renewTime": "2001-01-01T00:00:00.000000Z", "leaseDurationSeconds": seconds}
    api.create(LEASES, {"metadata": {"name": "node-rollout"}, "spec": spec})


def looked(
    api: KubeApi, renewed_at: float | None = None, notice: Callable[[str], None] = lambda _message: None
) -> tuple[bool, float]:
    """What came of it, and how long it took."""
    passing = Passing(api, renewed_at)
    watch = LeaseWatch(passing)
    state = await_sign(watch, lambda: read_lease(api, "kube-system"), notice)
    return state is Holder.ALIVE, passing.time


@pytest.mark.parametrize(("seconds", "longest"), [(1, 3), (3, 3.5), (30, 12), (None, 12), (120, 42.5), (600, 202.5)])
def test_a_dead_one_is_watched_for_as_long_as_its_renewal_could_take(
    seconds: int | None, longest: float, api: KubeApi
) -> None:
    hold(api, seconds)
    alive, took = looked(api)
    assert not alive
    assert (seconds or 30) / 3 < took <= longest


@pytest.mark.parametrize(("seconds", "renewed_at"), [(3, 1), (30, 10), (120, 40), (600, 200)])
def test_a_living_one_is_seen_at_its_next_renewal(seconds: int, renewed_at: float, api: KubeApi) -> None:
    hold(api, seconds)
    assert looked(api, renewed_at) == (True, renewed_at)


class SetClock(SystemClock):
    """Shows what a test sets."""

    seconds = 0.0

    def now(self) -> datetime:
        raise AssertionError("clocks of two machines are never compared")

    def monotonic(self) -> float:
        return self.seconds


def test_a_watch_tells_a_living_holder_from_one_that_is_gone() -> None:
    clock = SetClock()
    watch = LeaseWatch(clock)
    assert watch.look(LeaseState("", "1", 0)) is Holder.NOBODY
    assert watch.look(LeaseState("ann", "2", 10)) is Holder.UNKNOWN
    clock.seconds = 29
    assert watch.look(LeaseState("ann", "3", 10)) is Holder.ALIVE
    clock.seconds = 58.9
    assert (watch.look(LeaseState("ann", "3", 10)), watch.stale) == (Holder.ALIVE, "")
    clock.seconds = 59
    assert (watch.look(LeaseState("ann", "3", 10)), watch.stale) == (Holder.GONE, "3")
    assert (watch.look(LeaseState("bob", "4", 10)), watch.stale) == (Holder.UNKNOWN, "")
    clock.seconds = 200
    assert watch.state is Holder.GONE
    assert watch.look(LeaseState("", "5", 10)) is Holder.NOBODY


def test_a_renewal_that_is_young_by_the_servers_clock_is_a_sign_of_life_at_once_and_an_old_one_none_of_death() -> None:
    clock = SetClock()
    for ago, state in [(6, Holder.ALIVE), (13, Holder.UNKNOWN), (3600, Holder.UNKNOWN)]:
        lease = LeaseState("ann", str(ago), 10, written=NOW - timedelta(seconds=ago))
        assert LeaseWatch(clock).look(lease, NOW) is state
    by_its_own_clock = LeaseState("ann", "1", 10, renewed=NOW)
    assert LeaseWatch(clock).look(by_its_own_clock, NOW) is Holder.UNKNOWN


def test_a_process_of_this_machine_that_ends_while_it_is_watched_is_gone_at_once() -> None:
    ended = list[str]()
    watch = LeaseWatch(SetClock(), lambda lease: lease.process in ended)
    lease = LeaseState("ann@here/1", "1", 10, process="p")
    assert watch.look(lease, NOW) is Holder.UNKNOWN
    ended.append("p")
    assert (watch.look(lease), watch.stale) == (Holder.GONE, "1")


NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def glanced(ago: float, *, one_clock: bool, has_ended: bool = False) -> Glance:
    """One look at a Lease of 30 s that was renewed so many seconds ago, by the server's clock or by the holder's."""
    at = NOW - timedelta(seconds=ago)
    lease = LeaseState("ann", "1", 10.0, renewed=at, written=at if one_clock else None)
    return glance(lease, NOW, has_ended=has_ended)


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
def test_one_look_calls_nobody_dead_who_may_still_renew_the_lock(ago: float, *, one_clock: bool, alive: object) -> None:
    assert glanced(ago, one_clock=one_clock).alive is alive


def test_one_look_is_enough_where_nobody_holds_it_or_the_process_has_ended_here() -> None:
    assert glance(LeaseState("", "1", 0.0), NOW).alive is False
    assert glanced(0, one_clock=True, has_ended=True).alive is False
    assert glance(LeaseState("ann", "1", 10.0), NOW).alive is None
