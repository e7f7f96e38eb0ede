"""Pod shapes by flags, drained by us and by a real kubectl side by side: both agree, but where we differ on purpose."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rollout.adapters.kube import Timeouts, connect
from rollout.errors import DrainError
from rollout.execution.drain import drain
from rollout.lab.api.resources import PODS
from rollout.lab.api.standalone import StandaloneApi, standalone_api
from rollout.model.policy import DrainPolicy
from rollout.model.quantity import Duration
from tests.execution.conftest import Recorder
from tests.execution.drains import (
    add_daemon_set,
    add_node,
    add_pod,
    ago,
    asked,
    context_of,
    end_pods_at_once,
    kubectl,
    owner,
    pods_on,
)

pytestmark = pytest.mark.kubectl

REMOVED, KEPT, REFUSED = "removed", "kept", "refused"
_NODES_A_PROCESS = 3
WAYS = ("pods/eviction", "pods")
EMPTY_DIR = ({"name": "d", "emptyDir": {}},)
MEMORY = ({"name": "d", "emptyDir": {"medium": "Memory"}},)
HOST_PATH = ({"name": "d", "hostPath": {"path": "/x"}},)


@dataclass(frozen=True)
class Shape:
    """A pod; None as a node without any."""

    owned: Mapping[str, Any] | None = None
    volumes: tuple[Mapping[str, Any], ...] = ()
    phase: str = "Running"
    ready: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)
    deleted_ago: int | None = None


DS = owner("DaemonSet", "agent")
GONE_DS = owner("DaemonSet", "gone")
RS, RC, JOB = (
    owner("ReplicaSet"),
    owner("ReplicationController", api_version="v1"),
    owner("Job", api_version="batch/v1"),
)
MIRROR = {"annotations": {"kubernetes.io/config.mirror": "x"}}

SHAPES: dict[str, Shape | None] = {
    "none": None,
    "rc": Shape(RC),
    "rs": Shape(RS),
    "rs-unready": Shape(RS, ready=False),
    "rs-pending": Shape(RS, phase="Pending", ready=False),
    "rs-empty-dir": Shape(RS, EMPTY_DIR),
    "rs-memory": Shape(RS, MEMORY),
    "rs-host-path": Shape(RS, HOST_PATH),
    "stateful": Shape(owner("StatefulSet")),
    "custom": Shape(owner("Database", api_version="example.org/v1")),
    "ds": Shape(DS),
    "ds-succeeded": Shape(DS, phase="Succeeded"),
    "ds-failed": Shape(DS, phase="Failed"),
    "ds-empty-dir": Shape(DS, EMPTY_DIR),
    "ds-gone": Shape(GONE_DS),
    "ds-gone-succeeded": Shape(GONE_DS, phase="Succeeded"),
    "ds-old-group": Shape(owner("DaemonSet", "agent", "extensions/v1beta1")),
    "job-empty-dir": Shape(JOB, EMPTY_DIR),
    "job-empty-dir-succeeded": Shape(JOB, EMPTY_DIR, phase="Succeeded"),
    "naked": Shape(),
    "naked-succeeded": Shape(phase="Succeeded"),
    "naked-empty-dir": Shape(volumes=EMPTY_DIR),
    "naked-empty-dir-failed": Shape(volumes=EMPTY_DIR, phase="Failed"),
    "mirror": Shape(owner("Node", api_version="v1"), metadata=MIRROR),
    "mirror-empty-dir": Shape(volumes=EMPTY_DIR, metadata=MIRROR),
    "labelled": Shape(metadata={"labels": {"tier": "web"}}),
    "rs-labelled": Shape(RS, metadata={"labels": {"tier": "web"}}),
    "rs-terminating-1s": Shape(RS, deleted_ago=1),
    "rs-terminating-100s": Shape(RS, deleted_ago=100),
    "naked-terminating-1s": Shape(deleted_ago=1),
    "naked-terminating-100s": Shape(deleted_ago=100),
}

# kubectl's outcome with no flag at all but --ignore-daemonsets, and what flags make of it.
PLAIN = {
    **dict.fromkeys(SHAPES, REMOVED),
    **dict.fromkeys(("none", "ds", "ds-empty-dir", "mirror", "mirror-empty-dir"), KEPT),
    **dict.fromkeys(("ds-gone", "naked", "labelled", "naked-terminating-1s", "naked-terminating-100s"), REFUSED),
    **dict.fromkeys(("rs-empty-dir", "rs-memory", "job-empty-dir", "naked-empty-dir"), REFUSED),
}
FORCED = dict.fromkeys(("ds-gone", "naked", "labelled", "naked-terminating-1s", "naked-terminating-100s"), REMOVED)
EMPTIED = dict.fromkeys(("rs-empty-dir", "rs-memory", "job-empty-dir"), REMOVED)
CHOSEN = {
    **dict.fromkeys(SHAPES, KEPT),
    "labelled": REFUSED,
    "rs-labelled": REMOVED,
}
OVERDUE = dict.fromkeys(("rs-terminating-100s", "naked-terminating-100s"), KEPT)


@dataclass(frozen=True)
class Flags:
    """A combination: as kubectl has it, as our policy has it, and what kubectl makes of it, different from PLAIN."""

    name: str
    kubectl: tuple[str, ...]
    policy: DrainPolicy
    outcome: Mapping[str, str]


def flags(*, force: bool, emptied: bool, deleting: bool) -> Flags:
    words = (
        *(("--force",) if force else ()),
        *(("--delete-emptydir-data",) if emptied else ()),
        *(("--disable-eviction",) if deleting else ()),
    )
    outcome = {**(FORCED if force else {}), **(EMPTIED if emptied else {})}
    outcome |= {"naked-empty-dir": REMOVED} if force and emptied else {}
    policy = DrainPolicy(Duration(20), force=force, delete_emptydir_data=emptied, disable_eviction=deleting)
    return Flags(" ".join(words) or "none", words, policy, outcome)


def further(name: str, policy: DrainPolicy, outcome: Mapping[str, str]) -> Flags:
    return Flags(name, tuple(name.split()), policy, outcome)


KEEPING = DrainPolicy(Duration(20), delete_emptydir_data=False)
COMBINATIONS = [
    *(flags(force=f, emptied=e, deleting=d) for f in (False, True) for e in (False, True) for d in (False, True)),
    further("--pod-selector=tier=web", DrainPolicy(Duration(20), pod_selector="tier=web"), CHOSEN),
    further(
        "--pod-selector=tier=web --force",
        DrainPolicy(Duration(20), pod_selector="tier=web", force=True),
        {**CHOSEN, "labelled": REMOVED},
    ),
    further(
        "--pod-selector=tier!=web --force --delete-emptydir-data",
        DrainPolicy(Duration(20), pod_selector="tier!=web", force=True),
        {**FORCED, **EMPTIED, "naked-empty-dir": REMOVED, "labelled": KEPT, "rs-labelled": KEPT},
    ),
    further(
        "--grace-period=7 --force",
        DrainPolicy(Duration(20), force=True, grace_period=7, delete_emptydir_data=False),
        FORCED,
    ),
    further(
        "--skip-wait-for-delete-timeout=20",
        DrainPolicy(Duration(20), skip_wait_for_delete_timeout=20, delete_emptydir_data=False),
        OVERDUE,
    ),
    further(
        "--skip-wait-for-delete-timeout=20 --force --disable-eviction",
        DrainPolicy(
            Duration(20), skip_wait_for_delete_timeout=20, force=True, disable_eviction=True, delete_emptydir_data=False
        ),
        {**FORCED, **OVERDUE},
    ),
]

# Where we differ, and why. Every entry has to occur, and nothing else may.
DECIDED = "its deletion was decided by whoever deleted it: it is waited for, and no reason to refuse the node"
DIFFERENCES = {
    ("naked-terminating-1s", REFUSED): (REMOVED, DECIDED),
    ("naked-terminating-100s", REFUSED): (REMOVED, DECIDED),
}


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[StandaloneApi]:
    with standalone_api(tmp_path) as server:
        end_pods_at_once(server, after=0)
        add_daemon_set(server, "agent")
        yield server


def prepare(server: StandaloneApi, side: str) -> dict[str, str]:
    """A node for each shape; the nodes by shape."""
    nodes = {shape: f"{side}-{shape}" for shape in SHAPES}
    for shape, pod in SHAPES.items():
        add_node(server, nodes[shape])
        if pod is not None:
            place(server, nodes[shape], pod)
    return nodes


def place(server: StandaloneApi, node: str, shape: Shape) -> None:
    metadata = dict(shape.metadata)
    if shape.deleted_ago is not None:
        # Stored with its deletion already on it: nobody ends it until it is touched again, or time has passed.
        metadata |= {"deletionTimestamp": ago(shape.deleted_ago), "deletionGracePeriodSeconds": 30}
    owned = None if shape.owned is None else dict(shape.owned)
    volumes = [dict(volume) for volume in shape.volumes]
    add_pod(server, node, node, owned=owned, phase=shape.phase, ready=shape.ready, volumes=volumes, metadata=metadata)


def outcome(server: StandaloneApi, node: str, *, failed: bool) -> str:
    if failed:
        assert pods_on(server, node), "a refused node was touched"
        return REFUSED
    return KEPT if pods_on(server, node) or node.endswith("-none") else REMOVED


def by_kubectl(server: StandaloneApi, home: Path, nodes: Mapping[str, str], words: tuple[str, ...]) -> dict[str, str]:
    """What becomes of each shape; a few nodes a process, for kubectl slows itself down to five requests a second."""
    every = list(nodes.values())
    groups = [every[start : start + _NODES_A_PROCESS] for start in range(0, len(every), _NODES_A_PROCESS)]
    with ThreadPoolExecutor(4) as pool:
        failed = set().union(*pool.map(lambda group: failed_by_kubectl(server, home, group, words), groups))
    return {shape: outcome(server, node, failed=node in failed) for shape, node in nodes.items()}


def failed_by_kubectl(server: StandaloneApi, home: Path, nodes: list[str], words: tuple[str, ...]) -> set[str]:
    ended = kubectl(server, home, "drain", *nodes, "--ignore-daemonsets", "--timeout=20s", *words)
    assert "timeout" not in ended.stderr, ended.stderr
    failed = {node for node in nodes if f'unable to drain node "{node}"' in ended.stderr}
    assert (ended.returncode != 0) == bool(failed), ended.stderr
    return failed


def by_us(server: StandaloneApi, nodes: Mapping[str, str], combination: Flags, recorder: Recorder) -> dict[str, str]:
    api = connect(server.kubeconfig, None, timeouts=Timeouts(connect=2, read=5))
    found = {}
    for shape, node in nodes.items():
        pod = SHAPES[shape]
        ends = pod is not None and pod.deleted_ago is not None and combination.outcome.get(shape) != KEPT
        try:
            with ending_soon(server, node, ends=ends):
                drain(context_of(node, api, recorder, combination.policy))
        except DrainError as error:
            found[shape] = outcome(server, node, failed="no pod was touched" in error.message)
        else:
            found[shape] = outcome(server, node, failed=False)
    return found


@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda flags: flags.name)
def test_every_shape_ends_as_with_kubectl(
    combination: Flags, quick: StandaloneApi, tmp_path: Path, recorder: Recorder
) -> None:
    nodes_of_theirs, nodes_of_ours = prepare(quick, "theirs"), prepare(quick, "ours")
    with ending_what_is_asked_for(quick):
        theirs = by_kubectl(quick, tmp_path, nodes_of_theirs, combination.kubectl)
    ours = by_us(quick, nodes_of_ours, combination, recorder)

    assert theirs == {**PLAIN, **combination.outcome}
    different = {shape for shape in SHAPES if ours[shape] != theirs[shape]}
    assert different == {shape for shape in SHAPES if (shape, theirs[shape]) in DIFFERENCES}
    for shape in different:
        assert ours[shape] == DIFFERENCES[shape, theirs[shape]][0]
    check_requests(quick, combination.policy)


@contextmanager
def ending_what_is_asked_for(server: StandaloneApi) -> Iterator[None]:
    """A kubelet for pods that were deleted beforehand: they end once somebody asks for them (again)."""

    async def end() -> None:
        while True:
            await asyncio.sleep(0.05)
            named = {record.target.name for record in server.server.requests if record.target.plural in WAYS}
            for pod in list(server.store.items(PODS)):
                metadata = pod["metadata"]
                if metadata.get("deletionTimestamp") and metadata["name"] in named:
                    server.store.remove(PODS, metadata["name"], metadata["namespace"])

    kubelet = asyncio.run_coroutine_threadsafe(end(), server.loop)
    try:
        yield
    finally:
        kubelet.cancel()


@contextmanager
def ending_soon(server: StandaloneApi, pod: str, *, ends: bool) -> Iterator[None]:
    """The same for pods that are only waited for."""

    def remove() -> None:
        if server.store.get(PODS, pod, "default"):
            server.store.remove(PODS, pod, "default")

    timer = threading.Timer(0.2, server.call, (remove,))
    if ends:
        timer.start()
    try:
        yield
    finally:
        if ends:
            timer.join()


def check_requests(server: StandaloneApi, policy: DrainPolicy) -> None:
    """One request a pod, by the door that the flag names, with the grace that was given."""
    ways = {True: asked(server, "delete", "pods"), False: asked(server, "create", "pods/eviction")}
    ours = [record for record in ways[policy.disable_eviction] if record.target.name.startswith("ours")]
    assert ours
    assert not [record for record in ways[not policy.disable_eviction] if record.target.name.startswith("ours")]
    assert len({record.target.name for record in ours}) == len(ours)
    graces = {'"gracePeriodSeconds":7' in record.body for record in ours}
    assert graces == {policy.grace_period == 7}
