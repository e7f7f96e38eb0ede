import json
import subprocess
import sys
from functools import partial
from typing import Any

import pytest

from rollout.errors import ApiError, ApiGoneError
from rollout.gather.cluster import decode, wire
from rollout.gather.cluster.listing import WatchEvent, decode_watch_line
from rollout.model.cluster import (
    Budget,
    ConditionStatus,
    LabelSelector,
    Node,
    OwnerRef,
    Pod,
    PodPhase,
    Resources,
)
from rollout.model.deployment import Deployment
from rollout.model.selectors import Requirement, SelectorOperator

Json = dict[str, Any]


def pod(document: Json, shared: decode.SharedValues | None = None) -> Pod:
    project = partial(decode.pod, shared=shared or decode.SharedValues())
    return decode.decode_object(json.dumps(document).encode(), wire.WirePod, project, "/pod")


def node(document: Json) -> Node:
    return decode.decode_object(json.dumps(document).encode(), wire.WireNode, decode.node, "/node")


def budget(spec: Json, status: Json | None = None) -> Budget:
    document = {"metadata": {"namespace": "a", "name": "b"}, "spec": spec, "status": status or {}}
    return decode.decode_object(
        json.dumps(document).encode(), wire.WireBudget, decode.budget, "/budget"
    )


def asks(**requests: str) -> Json:
    return {"resources": {"requests": requests}}


def sidecar(**requests: str) -> Json:
    return {"restartPolicy": "Always", **asks(**requests)}


@pytest.mark.parametrize(
    ("spec", "cpu", "memory"),
    [
        ({}, 0, 0),
        ({"containers": [asks(cpu="100m", memory="1Gi"), asks(cpu="1")]}, 1100, 1 << 30),
        (
            {"containers": [asks(cpu="100m")], "initContainers": [asks(cpu="1", memory="5k")]},
            1000,
            5000,
        ),
        (
            {"containers": [asks(cpu="2")], "initContainers": [asks(cpu="1"), asks(cpu="1500m")]},
            2000,
            0,
        ),
        ({"containers": [asks(cpu="1")], "initContainers": [sidecar(cpu="500m")]}, 1500, 0),
        (
            {"containers": [asks(cpu="1")], "initContainers": [sidecar(cpu="500m"), asks(cpu="2")]},
            2500,
            0,
        ),
        (
            {"containers": [asks(cpu="1")], "initContainers": [asks(cpu="2"), sidecar(cpu="500m")]},
            2000,
            0,
        ),
        (
            {"containers": [asks(cpu="1")], "overhead": {"cpu": "250m", "memory": "120Mi"}},
            1250,
            120 << 20,
        ),
        ({"containers": [asks(cpu="1", memory="1Gi")], **asks(cpu="3")}, 3000, 1 << 30),
        ({"containers": [{"resources": {"requests": {"cpu": 2, "memory": 1000}}}]}, 2000, 1000),
    ],
)
def test_requests_are_summed_as_the_scheduler_sums_them(spec: Json, cpu: int, memory: int) -> None:
    assert pod({"metadata": {"name": "p"}, "spec": spec}).requests == Resources(cpu, memory, 1)


GPU = "nvidia.com/gpu"
DISK = "ephemeral-storage"
PAGES = "hugepages-2Mi"


@pytest.mark.parametrize(
    ("spec", "others"),
    [
        ({"containers": [asks(**{GPU: "1", "cpu": "1"}), asks(**{GPU: "2"})]}, ((GPU, 3),)),
        (
            {
                "containers": [asks(**{GPU: "1"})],
                "initContainers": [asks(**{GPU: "2", DISK: "1Gi"})],
            },
            ((DISK, 1 << 30), (GPU, 2)),
        ),
        (
            {"containers": [asks(**{GPU: "1"})], "initContainers": [sidecar(**{GPU: "2"})]},
            ((GPU, 3),),
        ),
        ({"containers": [asks(**{PAGES: "4Mi"})], **asks(**{PAGES: "8Mi"})}, ((PAGES, 8 << 20),)),
        (
            {"containers": [asks(**{GPU: "1"})], "overhead": {"cpu": "1", DISK: "1k"}},
            ((DISK, 1000), (GPU, 1)),
        ),
        ({"containers": [{"ports": [{"containerPort": 80}]}]}, ()),
        (
            {"containers": [{"ports": [{"containerPort": 80, "hostPort": 8080}]}]},
            (("host port 8080/TCP", 1),),
        ),
        (
            {
                "containers": [
                    {
                        "ports": [
                            {"hostPort": 53, "protocol": "UDP"},
                            {"hostPort": 53, "hostIP": "::"},
                        ]
                    }
                ]
            },
            (("host port 53/TCP", 1), ("host port 53/UDP", 1)),
        ),
        ({"containers": [{"ports": [{"hostPort": 80, "hostIP": "127.0.0.1"}]}]}, ()),
        (
            {
                "initContainers": [
                    {"ports": [{"hostPort": 1}]},
                    {**sidecar(), "ports": [{"hostPort": 2}]},
                ]
            },
            (("host port 2/TCP", 1),),
        ),
    ],
)
def test_whatever_else_is_counted_is_summed_too(
    spec: Json, others: tuple[tuple[str, int], ...]
) -> None:
    assert pod({"metadata": {"name": "p"}, "spec": spec}).requests.others == others


def test_a_pod_in_full() -> None:
    assert pod(
        {
            "metadata": {
                "namespace": "shop",
                "name": "db-0",
                "uid": "u1",
                "labels": {"app": "db"},
                "annotations": {"kubernetes.io/config.mirror": "x"},
                "deletionTimestamp": "2026-11-21T02:35:48Z",
                "finalizers": ["example.com/hold"],
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Thing", "name": "t", "uid": "u8"},
                    {
                        "apiVersion": "apps/v1",
                        "kind": "StatefulSet",
                        "name": "db",
                        "uid": "u9",
                        "controller": True,
                    },
                ],
                "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:x": {}}}],
            },
            "spec": {
                "nodeName": "n1",
                "nodeSelector": {"disk": "ssd"},
                "terminationGracePeriodSeconds": 0,
                "volumes": [
                    {"name": "a", "emptyDir": {"medium": "Memory"}},
                    {"name": "b", "persistentVolumeClaim": {"claimName": "data-db-0"}},
                    {"name": "c", "ephemeral": {"volumeClaimTemplate": {}}},
                    {"name": "d", "configMap": {"name": "x"}},
                ],
                "containers": [{"name": "c", "image": "i"}],
            },
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }
    ) == Pod(
        namespace="shop",
        name="db-0",
        uid="u1",
        node="n1",
        phase=PodPhase.RUNNING,
        ready=True,
        labels={"app": "db"},
        owner=OwnerRef("apps/v1", "StatefulSet", "db", "u9"),
        mirror=True,
        has_empty_dir=True,
        requests=Resources(0, 0, 1),
        deleted_at="2026-11-21T02:35:48Z",
        grace_period=0,
        finalizers=("example.com/hold",),
        node_selector={"disk": "ssd"},
        claims=("data-db-0",),
    )


@pytest.mark.parametrize(
    ("scheduled", "ready", "seconds"),
    [
        ("2026-11-21T02:00:00Z", "2026-11-21T02:01:30Z", 90),
        ("2026-11-21T02:00:00Z", "2026-11-21T02:00:00Z", 0),
        ("2026-11-21T02:00:00Z", "2026-11-21T01:59:00Z", None),
        ("2026-11-21T02:00:00", "2026-11-21T02:01:30Z", 90),
        ("yesterday", "2026-11-21T02:01:30Z", None),
        (None, "2026-11-21T02:01:30Z", None),
    ],
)
def test_how_long_a_pod_took_from_its_node_to_being_ready(
    scheduled: str | None, ready: str, seconds: int | None
) -> None:
    conditions: list[Json] = [
        {"type": "Ready", "status": "True", "lastTransitionTime": ready},
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": scheduled},
    ]
    made: Json = {
        "metadata": {"name": "p"},
        "status": {"phase": "Running", "conditions": conditions},
    }
    assert pod(made).start_seconds == seconds
    unready = [{**conditions[0], "status": "False"}, conditions[1]]
    assert (
        pod({**made, "status": {"phase": "Running", "conditions": unready}}).start_seconds is None
    )


def test_a_pod_of_which_next_to_nothing_is_known() -> None:
    bare = pod({"metadata": {"name": "p"}})
    assert bare.phase == PodPhase.UNKNOWN
    assert not bare.ready
    assert bare.owner is None
    assert bare.node == ""
    assert bare.grace_period == 30
    assert pod({"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Melting"}}) == bare


def test_what_is_null_is_absent() -> None:
    """Also a level below, and in parts that are read later."""
    bare = pod({"metadata": {"name": "p"}})
    nulls = {
        "containers": None,
        "volumes": None,
        "tolerations": None,
        "affinity": {"podAffinity": None},
    }
    assert (
        pod({"metadata": {"name": "p", "labels": None, "uid": None}, "spec": nulls, "status": None})
        == bare
    )
    assert pod({"metadata": {"name": "p"}, "spec": {"affinity": {"podAffinity": None}}}) == bare


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ([], ConditionStatus.UNKNOWN),
        ([{"type": "Ready", "status": "True"}], ConditionStatus.TRUE),
        ([{"type": "Ready", "status": "Unknown"}], ConditionStatus.UNKNOWN),
        ([{"type": "Ready", "status": "Maybe"}], ConditionStatus.UNKNOWN),
    ],
)
def test_readiness_of_a_node(conditions: list[Json], ready: ConditionStatus) -> None:
    assert node({"metadata": {"name": "n"}, "status": {"conditions": conditions}}).ready is ready


def test_a_budget_in_full() -> None:
    expression = {"key": "tier", "operator": "In", "values": ["a", "b"]}
    assert budget(
        {
            "selector": {"matchLabels": {"app": "x"}, "matchExpressions": [expression]},
            "minAvailable": "50%",
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
        {"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 4},
    ) == Budget(
        namespace="a",
        name="b",
        selector=LabelSelector(
            (
                Requirement("app", SelectorOperator.IN, ("x",)),
                Requirement("tier", SelectorOperator.IN, ("a", "b")),
            )
        ),
        min_available="50%",
        max_unavailable="",
        disruptions_allowed=1,
        current_healthy=3,
        desired_healthy=2,
        expected_pods=4,
        always_allow_unhealthy=True,
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"{}",
        b'{"metadata": {"name": 5}}',
        b'{"metadata": {"name": "p"}, "spec": {"containers": {"a": 1}}}',
        (
            b'{"metadata": {"name": "p"}, "spec": {"containers": [{"resources": {"requests":'
            b' {"cpu": "much"}}}]}}'
        ),
    ],
)
def test_a_garbled_answer_names_where_it_came_from(body: bytes) -> None:
    project = partial(decode.pod, shared=decode.SharedValues())
    with pytest.raises(
        ApiError, match="the response to /api/v1/pods is not from a Kubernetes API server"
    ):
        decode.decode_object(body, wire.WirePod, project, "/api/v1/pods")


PODS = "/api/v1/pods"


def read(line: bytes) -> WatchEvent[Pod]:
    return decode_watch_line(
        line, wire.WirePod, partial(decode.pod, shared=decode.SharedValues()), PODS
    )


def line(kind: str, /, **body: Any) -> bytes:
    return json.dumps({"type": kind, "object": body}).encode()


def test_an_expired_version_inside_a_watch_is_gone() -> None:
    status = {
        "kind": "Status",
        "code": 410,
        "reason": "Expired",
        "message": "too old resource version: 1 (9)",
    }
    with pytest.raises(ApiGoneError, match=r"^too old resource version: 1 \(9\)$"):
        read(line("ERROR", **status))


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"type": "NEW", "object": {}}', b'{"type": "ADDED"}', b"x"]
)
def test_a_garbled_line_is_an_error(body: bytes) -> None:
    with pytest.raises(
        ApiError, match=f"the response to {PODS} is not from a Kubernetes API server"
    ):
        read(body)


# Many threads that meet the same structs for the first time, in a process of their own: the failure
# is a crash.


RACE = """
import sys, threading
import msgspec
from rollout.gather.cluster.wire import decoder_of

sys.setswitchinterval(1e-6)
BODY = b'{"f0": {"g0": 1, "g9": {"a": 2}}, "f9": {"g0": 3}}'


def fresh(number):
    inner = msgspec.defstruct(f"Inner{number}", [(f"g{i}", dict[str, int] | int | None, None) for i in range(20)])
    return msgspec.defstruct(f"Outer{number}", [(f"f{i}", inner | None, None) for i in range(20)])


def decode(shape, start):
    start.wait()
    decoder_of(shape).decode(BODY)


for number in range(150):
    shape, start = fresh(number), threading.Barrier(6)
    threads = [threading.Thread(target=decode, args=(shape, start)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_first_meetings_in_many_threads_crash_nothing() -> None:
    """With msgspec alone it ends with a segmentation fault, every time."""
    ended = subprocess.run(
        [sys.executable, "-c", RACE], capture_output=True, text=True, check=False, timeout=100
    )
    assert ended.returncode == 0, ended.stderr


def test_an_unknown_selector_operator_is_refused_not_ignored() -> None:
    with pytest.raises(ApiError, match="Near"):
        budget({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}})


def test_zero_is_a_number_of_pods_and_not_an_absence() -> None:
    assert budget({"maxUnavailable": 0}).max_unavailable == "0"
    assert budget({}).max_unavailable == ""


def deployment(spec: Json, status: Json | None = None) -> Deployment:
    metadata = {"namespace": "a", "name": "web", "uid": "u", "generation": 4}
    document = {"metadata": metadata, "spec": spec, "status": status or {}}
    body = json.dumps(document).encode()
    return decode.decode_object(body, wire.WireDeployment, decode.deployment, "/deployment")


@pytest.mark.parametrize(
    ("replicas", "rolling", "surge", "unavailable"),
    [
        (1, {}, 1, 0),
        (4, {}, 1, 1),
        (3, {"maxSurge": "50%", "maxUnavailable": "50%"}, 2, 1),
        (1, {"maxSurge": "1%", "maxUnavailable": "99%"}, 1, 0),
        (1, {"maxSurge": "100%", "maxUnavailable": "100%"}, 1, 1),
        (7, {"maxSurge": "29%", "maxUnavailable": "29%"}, 3, 2),
        (5, {"maxSurge": "0%", "maxUnavailable": "0%"}, 0, 0),
        (5, {"maxSurge": 0, "maxUnavailable": 2}, 0, 2),
    ],
)
def test_shares_of_replicas_are_rounded_as_the_deployment_controller_does(
    replicas: int, rolling: Json, surge: int, unavailable: int
) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    read = deployment({"replicas": replicas, "strategy": strategy})
    assert read.is_rolling
    assert read.surge == surge
    assert read.unavailable == unavailable


def test_a_deployment_that_recreates_its_pods() -> None:
    read = deployment({"replicas": 1, "strategy": {"type": "Recreate"}, "paused": True})
    assert not read.is_rolling
    assert read.is_paused


@pytest.mark.parametrize(
    ("status", "progress"),
    [
        ({"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}, (1, 1)),
        # The old pod of two is the one that is available.
        ({"replicas": 2, "updatedReplicas": 1, "availableReplicas": 1}, (1, 0)),
        ({"replicas": 2, "updatedReplicas": 1, "availableReplicas": 2}, (1, 1)),
        ({"replicas": 1, "availableReplicas": 1}, (0, 0)),
        ({}, (0, 0)),
    ],
)
def test_available_pods_count_only_if_they_are_new(status: Json, progress: tuple[int, int]) -> None:
    read = deployment({"replicas": 1}, status).progress
    assert (read.updated, read.available) == progress


def test_how_far_a_restart_is() -> None:
    template = {"metadata": {"annotations": {decode.RESTARTED_AT: "2026-03-01T12:00:00Z"}}}
    late = [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]
    read = deployment({"template": template}, {"observedGeneration": 4, "conditions": late})
    assert read.restarted_at == "2026-03-01T12:00:00Z"
    assert read.progress.is_observed
    assert read.progress.is_late
    assert not deployment({}, {"observedGeneration": 3}).progress.is_observed


@pytest.mark.parametrize(
    ("modes", "is_shared"),
    [
        (["ReadWriteMany"], True),
        (["ReadWriteOnce", "ReadOnlyMany"], True),
        (["ReadWriteOnce"], None),
    ],
)
def test_a_volume_that_several_nodes_can_mount(modes: list[str], *, is_shared: bool | None) -> None:
    claim = {"namespace": "a", "name": "data"}
    document = {"metadata": {"name": "pv"}, "spec": {"claimRef": claim, "accessModes": modes}}
    body = json.dumps(document).encode()
    read = decode.decode_object(body, wire.WireVolume, decode.volume, "/pv")
    assert (read.is_shared if read else None) is is_shared
