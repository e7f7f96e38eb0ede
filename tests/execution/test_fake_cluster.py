"""The cluster in memory and the one behind a wire are one and the same to a `ClusterApi`'s user."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from rollout.errors import ApiConflictError, ApiError, TooManyRequestsError
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import PODS
from rollout.ports import ClusterApi
from tests.execution.drains import NODE, add_budget, add_pod, allow, asked, fill
from tests.standalone_api import StandaloneApi

ON_BOTH = [pytest.param(id="wire"), pytest.param(id="memory", marks=pytest.mark.in_memory)]
pytestmark = [pytest.mark.parametrize((), ON_BOTH), pytest.mark.usefixtures("node")]
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
POD_LIST = "/api/v1/namespaces/default/pods"


def lease(api: ClusterApi, **spec: Any) -> dict[str, Any]:
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "a"},
        "spec": spec,
    }
    made: dict[str, Any] = json.loads(api.create(LEASES, body))
    return made


def evict(api: ClusterApi, name: str, **options: Any) -> bytes:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name},
        "deleteOptions": options,
    }
    return api.create(f"{POD_LIST}/{name}/eviction", body)


def refusal(act: Callable[[], object]) -> ApiError:
    with pytest.raises(ApiError) as refused:
        act()
    return refused.value


def test_what_was_changed_meanwhile_is_not_replaced(api: ClusterApi) -> None:
    read = lease(api, holderIdentity="ann")
    api.patch(f"{LEASES}/a", {"spec": {"holderIdentity": "bob"}})
    read["spec"]["holderIdentity"] = "eve"
    refused = refusal(lambda: api.replace(f"{LEASES}/a", read))
    assert type(refused) is ApiConflictError
    assert refused.status == 409
    assert refused.reason == "Conflict"
    read["metadata"]["resourceVersion"] = json.loads(api.get(f"{LEASES}/a"))["metadata"][
        "resourceVersion"
    ]
    assert json.loads(api.replace(f"{LEASES}/a", read))["spec"]["holderIdentity"] == "eve"


def test_an_eviction_asks_the_budget_and_whose_pod_it_is(
    api: ClusterApi, server: StandaloneApi
) -> None:
    fill(server, 2)
    add_budget(server, "web", allowed=1, needs=1, has=2)
    uid = json.loads(api.get(f"{POD_LIST}/p0"))["metadata"]["uid"]
    another = refusal(lambda: evict(api, "p0", preconditions={"uid": "another"}))
    assert another.status == 409
    allow(server, "web", 1)
    evict(api, "p0", preconditions={"uid": uid}, gracePeriodSeconds=7)
    assert json.loads(api.get(f"{POD_LIST}/p0"))["metadata"]["deletionGracePeriodSeconds"] == 7
    held = refusal(lambda: evict(api, "p1"))
    assert isinstance(held, TooManyRequestsError)
    assert [cause.reason for cause in held.causes] == ["DisruptionBudget"]
    assert [record.status for record in asked(server, "create", "pods/eviction")] == [409, 201, 429]
    add_budget(server, "second", allowed=1, app="web")
    assert refusal(lambda: evict(api, "p1")).status == 500


def test_a_watch_tells_of_all_since_a_version_and_ends_with_its_time(
    api: ClusterApi, server: StandaloneApi
) -> None:
    fill(server, 1)
    version = json.loads(api.get(POD_LIST))["metadata"]["resourceVersion"]
    api.patch(f"{POD_LIST}/p0", {"metadata": {"labels": {"app": "db"}}})
    query = {
        "resourceVersion": version,
        "labelSelector": "app=web",
        "fieldSelector": f"spec.nodeName={NODE}",
    }
    began = time.monotonic()
    with api.watch(POD_LIST, query, seconds=1) as lines:
        first = json.loads(next(lines))
        add_pod(server, NODE, "new", owned=None, metadata={"labels": {"app": "web"}})
        add_pod(server, "another", "elsewhere", owned=None, metadata={"labels": {"app": "web"}})
        told = [first, *map(json.loads, lines)]
    assert [
        (event["type"], event["object"]["metadata"]["name"])
        for event in told
        if event["type"] != "BOOKMARK"
    ] == [("DELETED", "p0"), ("ADDED", "new")]
    assert time.monotonic() - began >= 1


@pytest.mark.parametrize(
    "answer",
    [
        FaultAnswer.UNAVAILABLE,
        FaultAnswer.TOO_MANY_REQUESTS,
        FaultAnswer.DROP,
        FaultAnswer.LOSE_ANSWER,
    ],
)
def test_faults_strike_it(api: ClusterApi, server: StandaloneApi, answer: FaultAnswer) -> None:
    fill(server, 1)
    rule = ApiFault(answer=answer, resource="pods", verb="delete", requests=1)
    server.call(lambda: server.server.faults.add(rule))
    refused = refusal(lambda: api.delete(f"{POD_LIST}/p0", {"gracePeriodSeconds": 0}))
    expected = {FaultAnswer.UNAVAILABLE: 503, FaultAnswer.TOO_MANY_REQUESTS: 429}
    assert refused.status == expected.get(answer, 0)
    left = server.call(lambda: list(server.store.items(PODS)))
    assert len(left) == (answer is not FaultAnswer.LOSE_ANSWER)
