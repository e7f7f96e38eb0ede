"""The lock on a real wire: who gets it, who is fenced, what outages do to it."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest

from rollout.adapters.clock import SystemClock
from rollout.adapters.kube.api import KubeApi
from rollout.errors import (
    ApiConflictError,
    ApiUnavailableError,
    BlockedError,
    FencedError,
    InterruptedRunError,
    LockedError,
)
from rollout.execution.base.deadline import GracefulStop, PatientApi
from rollout.execution.lease import LeaseState, LeaseWatch, read_lease
from rollout.execution.lock import LeaseLock, LockOptions
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.ports import ClusterApi
from tests.execution.simulated import SetClock
from tests.standalone_api import StandaloneApi
from tests.waiting import wait_until

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/node-rollout"


def lock(
    api: KubeApi,
    holder: str,
    *,
    seconds: int = 2,
    patience: float = 10.0,
    told: Callable[[BaseException], None] = lambda _error: None,
    force_unlock: str = "",
    watch: LeaseWatch | None = None,
    **more: Any,
) -> LeaseLock:
    cluster = PatientApi(api, SystemClock(), told, patience)
    options = LockOptions(holder, seconds=seconds, force_unlock=force_unlock, watch=watch)
    return LeaseLock(cluster, options, f"run-of-{holder}", **more)


def lease(api: KubeApi) -> dict[str, object]:
    found = json.loads(api.get(PATH))
    return {**found["spec"], "annotations": found["metadata"].get("annotations", {})}


def test_it_is_held_renewed_and_released_and_what_others_write_on_it_stays(api: KubeApi) -> None:
    """As a controller does that labels everything: taken away, it would be written again and again."""
    theirs = {
        "labels": {"team": "a"},
        "annotations": {"example.com/b": "c"},
        "finalizers": ["example.com/hold"],
    }
    with lock(api, "ann") as held:
        first = lease(api)
        assert first["holderIdentity"] == "ann"
        assert first["annotations"] == {"node-rollout.dev/run": "run-of-ann"}
        held.check()
        api.patch(PATH, {"metadata": theirs})
        wait_until(lambda: lease(api)["renewTime"] != first["renewTime"])
        held.check()
        assert lease(api)["acquireTime"] == first["acquireTime"]
        metadata = json.loads(api.get(PATH))["metadata"]
        assert metadata["labels"] == theirs["labels"]
        assert metadata["finalizers"] == theirs["finalizers"]
        assert metadata["annotations"] == {
            "example.com/b": "c",
            "node-rollout.dev/run": "run-of-ann",
        }
    with pytest.raises(FencedError, match="the lock was released"):
        held.check()
    assert lease(api)["holderIdentity"] == ""
    assert lease(api)["annotations"] == {"example.com/b": "c"}


def test_a_second_one_is_refused_while_the_first_renews(api: KubeApi) -> None:
    with (
        lock(api, "ann"),
        pytest.raises(BlockedError, match="a rollout is running on ann"),
        lock(api, "bob"),
    ):
        pass
    with lock(api, "bob"):
        assert lease(api)["holderIdentity"] == "bob"
        assert lease(api)["leaseTransitions"] == 1


def test_a_dead_holders_is_taken_though_others_write_beside_it(api: KubeApi) -> None:
    with lock(api, "ann"):
        dead = json.loads(api.get(PATH))
    api.replace(PATH, {**json.loads(api.get(PATH)), "spec": dead["spec"]})
    renewed = read_lease(api, "kube-system").written
    over = threading.Event()

    def write() -> None:
        while not over.wait(0.05):
            api.patch(
                PATH,
                {"metadata": {"labels": {"at": str(time.monotonic_ns())}}},
                {"fieldManager": "labeller"},
            )

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
    dead["spec"] |= {
        "holderIdentity": "ann",
        "leaseDurationSeconds": 1,
        "renewTime": "2099-01-01T00:00:00.000000Z",
    }
    api.replace(PATH, dead)
    started = time.monotonic()
    with lock(api, "bob") as held:
        held.check()
        assert time.monotonic() - started >= 1
        assert lease(api)["holderIdentity"] == "bob"


def test_a_stop_ends_the_wait_for_another_ones(api: KubeApi) -> None:
    """The wish comes just when it has begun to look on; a lease of ten minutes would otherwise be
    waited out.
    """
    hold_by_hand(api, "ann", seconds=600)
    stop = GracefulStop()
    notices = list[str]()

    def notice(message: str) -> None:
        notices.append(message)
        stop.request()

    with (
        pytest.raises(InterruptedRunError, match="nothing was started"),
        lock(api, "bob", seconds=30, stop=stop, notice=notice),
    ):
        pass
    told = "ann holds the lock: waiting up to 10m to see if it is renewed; if that process is gone, run: "
    assert notices == [f"{told}kubectl -n kube-system delete lease node-rollout"]
    assert lease(api)["holderIdentity"] == "ann"


def test_once_it_is_held_it_is_renewed_whoever_wishes_to_stop(
    api: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes are finished after a stop. A renewal that meets a conflict, and then no server, is the
    longest way.
    """
    stop = GracefulStop()
    with lock(api, "ann", patience=60, seconds=1, stop=stop) as held:
        stop.request()
        outages = [ApiUnavailableError("away"), ApiUnavailableError("away")]
        get = KubeApi.get

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


def steal(api: KubeApi) -> None:
    stolen = json.loads(api.get(PATH))
    stolen["spec"]["holderIdentity"] = "bob"
    api.replace(PATH, stolen)


@pytest.mark.parametrize(
    ("lose", "why"),
    [(steal, "held by bob"), (lambda api: api.delete(PATH), "is free now")],
    ids=["stolen", "deleted"],
)
def test_whoever_loses_it_is_fenced_and_leaves_it_alone(
    lose: Callable[[KubeApi], object], why: str, api: KubeApi
) -> None:
    with lock(api, "ann") as held:
        lose(api)
        with pytest.raises(FencedError, match=why):
            wait_for_a_fence(held)
    if lose is steal:
        assert lease(api)["holderIdentity"] == "bob"


def test_renewals_that_hang_one_after_the_other_hold_up_the_next_act_and_no_more(
    api: KubeApi, server: StandaloneApi
) -> None:
    with lock(api, "ann", seconds=1) as held:
        fault = inflict(server, hung(requests=4))
        wait_until(lambda: struck(server, fault) == 3)
        held.check()
        assert struck(server, fault) == 4
        assert lease(api)["holderIdentity"] == "ann"


def test_an_outage_longer_than_the_lease_is_outwaited_before_the_next_act(
    api: KubeApi, server: StandaloneApi
) -> None:
    told = list[BaseException]()
    with lock(api, "ann", told=told.append, seconds=1) as held:
        server.outage(2.5)
        held.check()
        assert lease(api)["holderIdentity"] == "ann"
    assert {type(error) for error in told} == {ApiUnavailableError}


def wait_for_a_fence(held: LeaseLock) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        held.check()
        time.sleep(0.1)


GARBLED = [
    FaultAnswer.HTML,
    FaultAnswer.EMPTY,
    FaultAnswer.WRONG_KIND,
    FaultAnswer.TRUNCATED,
    FaultAnswer.BROKEN_OFF,
]


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
    with lock(api, "ann", told=told.append, seconds=1) as held:
        fault = inflict(
            server, ApiFault(answer=answer, verb="update", resource="leases", requests=2, done=done)
        )
        wait_until(lambda: struck(server, fault) == 2)
        renewed = lease(api)["renewTime"]
        wait_until(lambda: lease(api)["renewTime"] != renewed)
        held.check()
    assert told
    assert lease(api)["holderIdentity"] == ""


def test_not_even_a_failure_that_nobody_thought_of_ends_the_renewing(
    api: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [RuntimeError("a bug"), RecursionError(), KeyError("x")]
    replace = KubeApi.replace

    def fail(asked: KubeApi, path: str, body: object) -> bytes:
        if failures:
            raise failures.pop()
        return replace(asked, path, body)

    def tell(_error: BaseException) -> None:
        raise ValueError("nobody listens")

    with lock(api, "ann", told=tell, seconds=1) as held:
        renewed = lease(api)["renewTime"]
        monkeypatch.setattr(KubeApi, "replace", fail)
        wait_until(lambda: not failures and lease(api)["renewTime"] != renewed)
        held.check()


def test_a_renewal_that_hangs_leaves_time_for_another(api: KubeApi, server: StandaloneApi) -> None:
    """Whoever watches for the whole duration sees a renewal, though one of them was never answered."""
    with lock(api, "ann", seconds=6) as held:
        fault = inflict(server, hung(requests=1))
        wait_until(lambda: struck(server, fault) == 1)
        with (
            pytest.raises(BlockedError, match="a rollout is running on ann"),
            lock(api, "bob", seconds=6),
        ):
            pass
        held.check()
        assert lease(api)["holderIdentity"] == "ann"


def hung(requests: int) -> ApiFault:
    return ApiFault(
        answer=FaultAnswer.HANG, verb="update", resource="leases", requests=requests, delay=100_000
    )


@pytest.mark.parametrize(
    "answer", [*GARBLED, FaultAnswer.HANG, FaultAnswer.TOO_MANY_REQUESTS, FaultAnswer.DROP]
)
def test_it_is_given_up_whatever_the_first_answer_to_that_is(
    api: KubeApi, server: StandaloneApi, answer: FaultAnswer
) -> None:
    with lock(api, "ann", seconds=4):
        inflict(
            server,
            ApiFault(
                answer=answer,
                verb="update",
                resource="leases",
                requests=1,
                delay=100_000,
                done=True,
            ),
        )
    assert lease(api)["holderIdentity"] == ""


def test_whoever_has_watched_the_lock_gives_way_but_to_the_version_that_it_saw_go_stale(
    api: KubeApi,
) -> None:
    """What was planned before another held it fits no more; a holder that was seen to be gone is
    not waited for.
    """
    hold_by_hand(api, "ann", seconds=600)
    clock = SetClock()
    free = LeaseWatch(clock)
    other = LeaseWatch(clock)
    same = LeaseWatch(clock)
    other.observe(LeaseState("eve", "1", 1.0))
    same.observe(read_lease(api, "kube-system"))
    clock.seconds = 600
    for watch in (free, other):
        with pytest.raises(LockedError, match="ann has taken the lock in the meantime"):
            lock(api, "bob", watch=watch).__enter__()
    with lock(api, "bob", watch=same) as held:
        held.check()
        assert lease(api)["holderIdentity"] == "bob"


def test_two_processes_of_one_name_are_two(api: KubeApi) -> None:
    with (
        lock(api, "ann", seconds=1) as first,
        lock(api, "ann", seconds=1, force_unlock="run-of-ann") as second,
    ):
        with pytest.raises(FencedError):
            wait_for_a_fence(first)
        second.check()


def test_a_renewal_just_then_does_not_keep_it_from_who_unlocks(
    api: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder is frozen or forgotten, and stirs once more between the look at it and the taking."""
    replace = KubeApi.replace
    stirs = ["2099-01-01T00:00:00.000000Z"]

    def late(asked: KubeApi, path: str, body: object) -> bytes:
        if stirs:
            current = json.loads(api.get(PATH))
            current["spec"]["renewTime"] = stirs.pop()
            replace(api, PATH, current)
        return replace(asked, path, body)

    with lock(api, "ann", seconds=3) as first:
        monkeypatch.setattr(KubeApi, "replace", late)
        with lock(api, "bob", seconds=30, force_unlock="run-of-ann") as second:
            assert not stirs
            second.check()
            assert lease(api)["holderIdentity"] == "bob"
            with pytest.raises(FencedError, match="held by bob"):
                wait_for_a_fence(first)


def test_one_whose_first_answer_was_lost_is_renewed_before_the_first_act(
    api: KubeApi, server: StandaloneApi
) -> None:
    """Others may have seen it taken long before it is known to be ours, and count from there."""
    lost = ApiFault(answer=FaultAnswer.LOSE_ANSWER, verb="create", resource="leases", requests=1)
    inflict(server, lost)
    with lock(api, "ann", seconds=60) as held:
        first = lease(api)["renewTime"]
        held.check()
        assert lease(api)["renewTime"] != first


@pytest.mark.in_memory
@pytest.mark.parametrize("seconds", ["-5", "1" + "0" * 400, "1e999", "1.5"])
def test_a_duration_that_no_lease_can_have_is_no_duration(seconds: str) -> None:
    """Of a negative one, a holder that renews would be taken for dead."""

    class Answers:
        def get(self, _path: str) -> bytes:
            spec = f'{{"holderIdentity": "ann", "leaseDurationSeconds": {seconds}}}'
            return f'{{"metadata": {{"name": "node-rollout"}}, "spec": {spec}}}'.encode()

    with pytest.raises(ApiUnavailableError, match="is not from a Kubernetes API server"):
        read_lease(cast("ClusterApi", Answers()), "kube-system")
