"""Pod shapes by flags, drained by us and by a real kubectl side by side: both agree, but where we
differ on purpose.
"""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from rollout.adapters.kube.api import Timeouts, connect
from rollout.errors import DrainError
from rollout.execution.drain.drain import drain
from rollout.lab.api.resources import PODS
from rollout.model.policy import DrainPolicy
from rollout.model.quantity import Duration
from tests.execution.conftest import Recorder
from tests.execution.drains import (
    add_daemon_set,
    add_node,
    add_pod,
    ago,
    asked,
    end_pods_at_once,
    kubectl,
    owner,
    pods_on,
    task_of,
)
from tests.standalone_api import StandaloneApi, standalone_api

pytestmark = pytest.mark.kubectl

_NODES_A_PROCESS = 2
WAYS = ("pods/eviction", "pods")
REMOVED = "removed"
KEPT = "kept"
REFUSED = "refused"
GRACE = 7
OVERDUE = 20

EMPTY_DIR = ({"name": "d", "emptyDir": {}},)
MEMORY = ({"name": "d", "emptyDir": {"medium": "Memory"}},)
HOST_PATH = ({"name": "d", "hostPath": {"path": "/x"}},)


@dataclass(frozen=True)
class Shape:
    """A pod. `deleted_ago`: its deletion should have ended it so many seconds ago."""

    owned: Mapping[str, Any] | None = None
    volumes: tuple[Mapping[str, Any], ...] = ()
    phase: str = "Running"
    ready: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)
    deleted_ago: int | None = None

    @property
    def labels(self) -> Mapping[str, str]:
        labels: Mapping[str, str] = self.metadata.get("labels", {})
        return labels


DS = owner("DaemonSet", "agent")
GONE_DS = owner("DaemonSet", "gone")
RS = owner("ReplicaSet")
RC = owner("ReplicationController", api_version="v1")
JOB = owner("Job", api_version="batch/v1")
MIRROR = {"annotations": {"kubernetes.io/config.mirror": "x"}}
WEB = {"labels": {"tier": "web"}}

# By name; None is a node without any pod.
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
    "ds-gone-empty-dir": Shape(GONE_DS, EMPTY_DIR),
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
    "labelled": Shape(metadata=WEB),
    "rs-labelled": Shape(RS, metadata=WEB),
    "rs-terminating-1s": Shape(RS, deleted_ago=1),
    "rs-terminating-100s": Shape(RS, deleted_ago=100),
    "rs-empty-dir-terminating-1s": Shape(RS, EMPTY_DIR, deleted_ago=1),
    "ds-gone-terminating-1s": Shape(GONE_DS, deleted_ago=1),
    "naked-terminating-1s": Shape(deleted_ago=1),
    "naked-terminating-100s": Shape(deleted_ago=100),
}


@dataclass(frozen=True)
class Flags:
    """A combination; `--ignore-daemonsets` is always on."""

    force: bool = False
    emptied: bool = False
    deleting: bool = False
    grace: bool = False
    skip: bool = False
    selector: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """As kubectl has them."""
        said = {
            "--force": self.force,
            "--delete-emptydir-data": self.emptied,
            "--disable-eviction": self.deleting,
            f"--grace-period={GRACE}": self.grace,
            f"--skip-wait-for-delete-timeout={OVERDUE}": self.skip,
            f"--pod-selector={self.selector}": self.selector,
        }
        return tuple(word for word, on in said.items() if on)

    @property
    def policy(self) -> DrainPolicy:
        """As we have them."""
        return DrainPolicy(
            Duration(20),
            force=self.force,
            delete_emptydir_data=self.emptied,
            disable_eviction=self.deleting,
            grace_period=GRACE if self.grace else None,
            skip_wait_for_delete_timeout=OVERDUE if self.skip else 0,
            pod_selector=self.selector,
        )

    def chooses(self, shape: Shape) -> bool:
        """Whether the selector does."""
        web = shape.labels.get("tier") == "web"
        return {"": True, "tier=web": web, "tier!=web": not web}[self.selector]

    def __str__(self) -> str:
        return " ".join(self.words) or "none"


ON_AND_OFF = (False, True)


def covering() -> tuple[Flags, ...]:
    """Few combinations in which every pair of settings occurs."""
    plain = tuple(
        Flags(force, emptied, deleting, grace=force ^ emptied, skip=emptied ^ deleting)
        for force, emptied, deleting in product(ON_AND_OFF, repeat=3)
    )
    return (
        *plain,
        Flags(force=True, grace=True, selector="tier=web"),
        Flags(emptied=True, deleting=True, skip=True, selector="tier=web"),
        Flags(force=True, deleting=True, grace=True, skip=True, selector="tier!=web"),
        Flags(emptied=True, selector="tier!=web"),
    )


def is_waited_for(shape: Shape | None, flags: Flags) -> bool:
    """Whether its end is awaited that others have asked for."""
    if shape is None or shape.deleted_ago is None or not flags.chooses(shape):
        return False
    return not (flags.skip and shape.deleted_ago > OVERDUE)


def place(server: StandaloneApi, node: str, name: str, shape: Shape) -> None:
    """The pod, on that node."""
    metadata = dict(shape.metadata)
    if shape.deleted_ago is not None:
        # Stored with its deletion already on it: nobody ends it until it is touched again, or time
        # has passed.
        metadata |= {"deletionTimestamp": ago(shape.deleted_ago), "deletionGracePeriodSeconds": 30}
    owned = None if shape.owned is None else dict(shape.owned)
    volumes = [dict(volume) for volume in shape.volumes]
    add_pod(
        server,
        node,
        name,
        owned=owned,
        phase=shape.phase,
        ready=shape.ready,
        volumes=volumes,
        metadata=metadata,
    )


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[StandaloneApi]:
    with standalone_api(tmp_path) as server:
        end_pods_at_once(server, after=0)
        add_daemon_set(server, "agent")
        yield server


def prepare(server: StandaloneApi, side: str) -> dict[str, str]:
    """A node for each shape; the nodes by shape."""
    nodes = {name: f"{side}-{name}" for name in SHAPES}
    for name, shape in SHAPES.items():
        add_node(server, nodes[name])
        if shape is not None:
            place(server, nodes[name], nodes[name], shape)
    return nodes


def outcome(server: StandaloneApi, node: str, *, failed: bool) -> str:
    if failed:
        assert pods_on(server, node), "a refused node was touched"
        return REFUSED
    return KEPT if pods_on(server, node) or node.endswith("-none") else REMOVED


def by_kubectl(
    server: StandaloneApi, home: Path, nodes: Mapping[str, str], flags: Flags
) -> dict[str, str]:
    """What becomes of each shape; a few nodes a process, for kubectl slows itself down to five
    requests a second.
    """
    every = list(nodes.values())
    groups = [
        every[start : start + _NODES_A_PROCESS] for start in range(0, len(every), _NODES_A_PROCESS)
    ]
    with ThreadPoolExecutor(4) as pool:
        failed = set().union(
            *pool.map(lambda group: failed_by_kubectl(server, home, group, flags), groups)
        )
    return {shape: outcome(server, node, failed=node in failed) for shape, node in nodes.items()}


def failed_by_kubectl(
    server: StandaloneApi, home: Path, nodes: list[str], flags: Flags
) -> set[str]:
    ended = kubectl(
        server, home, "drain", *nodes, "--ignore-daemonsets", "--timeout=60s", *flags.words
    )
    assert "timeout" not in ended.stderr, ended.stderr
    failed = {node for node in nodes if f'unable to drain node "{node}"' in ended.stderr}
    assert (ended.returncode != 0) == bool(failed), ended.stderr
    return failed


def by_us(
    server: StandaloneApi, nodes: Mapping[str, str], flags: Flags, recorder: Recorder
) -> dict[str, str]:
    api = connect(server.kubeconfig, None, timeouts=Timeouts(connect=2, read=5))

    def one(name: str) -> str:
        shape = SHAPES[name]
        node = nodes[name]
        try:
            with ending_soon(server, node, ends=is_waited_for(shape, flags)):
                drain(task_of(node, api, recorder, flags.policy))
        except DrainError as error:
            return outcome(server, node, failed="no pods were evicted" in error.message)
        return outcome(server, node, failed=False)

    with ThreadPoolExecutor(4) as pool:
        return dict(zip(nodes, pool.map(one, nodes), strict=True))


@pytest.mark.sample(3)
@pytest.mark.parametrize("flags", covering(), ids=str)
def test_every_shape_ends_as_with_kubectl(
    flags: Flags, quick: StandaloneApi, tmp_path: Path, recorder: Recorder
) -> None:
    """But for pods that are told to go already: that was decided by others, and is no reason to
    refuse their node.
    """
    nodes_of_theirs = prepare(quick, "theirs")
    nodes_of_ours = prepare(quick, "ours")
    with ending_what_is_asked_for(quick):
        theirs = by_kubectl(quick, tmp_path, nodes_of_theirs, flags)
    ours = by_us(quick, nodes_of_ours, flags, recorder)
    going = {
        name
        for name, shape in SHAPES.items()
        if shape is not None and shape.deleted_ago is not None
    }
    decided = {name: REMOVED for name in going if theirs[name] == REFUSED}
    assert ours == {**theirs, **decided}
    check_requests(quick, flags)


@contextmanager
def ending_what_is_asked_for(server: StandaloneApi) -> Iterator[None]:
    """A kubelet for pods that were deleted beforehand: they end once somebody asks for them
    (again).
    """

    async def end() -> None:
        while True:
            await asyncio.sleep(0.05)
            named = {
                record.target.name
                for record in server.server.requests
                if record.target.plural in WAYS
            }
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
        # In one turn of the server's loop: the other kubelet ends pods in between.
        if server.store.get(PODS, pod, "default") is not None:
            server.store.remove(PODS, pod, "default")

    timer = threading.Timer(0.2, lambda: server.call(remove))
    if ends:
        timer.start()
    try:
        yield
    finally:
        if ends:
            timer.join()


def check_requests(server: StandaloneApi, flags: Flags) -> None:
    """One request a pod, by the door that the flag names, with the grace that was given."""
    ways = {True: asked(server, "delete", "pods"), False: asked(server, "create", "pods/eviction")}
    ours = [record for record in ways[flags.deleting] if record.target.name.startswith("ours")]
    assert ours
    assert not [
        record for record in ways[not flags.deleting] if record.target.name.startswith("ours")
    ]
    assert len({record.target.name for record in ours}) == len(ours)
    assert {f'"gracePeriodSeconds":{GRACE}' in record.body for record in ours} == {flags.grace}
