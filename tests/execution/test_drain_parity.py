"""Pod shapes by flags, drained by us and by a real kubectl side by side: both agree, but where we differ on purpose.

`DRAIN_PARITY=all` takes every combination of flags to kubectl, which takes it several minutes; otherwise every pair of
settings occurs. Our verdicts are held to every combination always.
"""

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from rollout.adapters.clock import SystemClock
from rollout.adapters.kube.api import Timeouts, connect
from rollout.errors import DrainError
from rollout.execution.drain.drain import drain
from rollout.gather.cluster.snapshot import read_daemon_sets, read_node_pods
from rollout.lab.api.resources import PODS
from rollout.planning.drain.verdicts import Action, DrainRules, PodVerdict, judge_all
from tests.execution.conftest import Recorder
from tests.execution.drains import (
    add_daemon_set,
    add_node,
    asked,
    end_pods_at_once,
    kubectl,
    pods_on,
    task_of,
)
from tests.execution.shapes import (
    DECIDED,
    EVERY,
    GRACE,
    KEPT,
    REFUSED,
    REMOVED,
    SHAPES,
    Flags,
    by_kubectls_rules,
    by_our_rules,
    covering,
    place,
)
from tests.standalone_api import StandaloneApi, standalone_api

pytestmark = pytest.mark.kubectl

_NODES_A_PROCESS = 2
WAYS = ("pods/eviction", "pods")
CHOSEN = EVERY if os.environ.get("DRAIN_PARITY") == "all" else covering()


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


def by_kubectl(server: StandaloneApi, home: Path, nodes: Mapping[str, str], flags: Flags) -> dict[str, str]:
    """What becomes of each shape; a few nodes a process, for kubectl slows itself down to five requests a second."""
    every = list(nodes.values())
    groups = [every[start : start + _NODES_A_PROCESS] for start in range(0, len(every), _NODES_A_PROCESS)]
    with ThreadPoolExecutor(4) as pool:
        failed = set().union(*pool.map(lambda group: failed_by_kubectl(server, home, group, flags), groups))
    return {shape: outcome(server, node, failed=node in failed) for shape, node in nodes.items()}


def failed_by_kubectl(server: StandaloneApi, home: Path, nodes: list[str], flags: Flags) -> set[str]:
    ended = kubectl(server, home, "drain", *nodes, "--ignore-daemonsets", "--timeout=60s", *flags.words)
    assert "timeout" not in ended.stderr, ended.stderr
    failed = {node for node in nodes if f'unable to drain node "{node}"' in ended.stderr}
    assert (ended.returncode != 0) == bool(failed), ended.stderr
    return failed


def by_us(server: StandaloneApi, nodes: Mapping[str, str], flags: Flags, recorder: Recorder) -> dict[str, str]:
    api = connect(server.kubeconfig, None, timeouts=Timeouts(connect=2, read=5))

    def one(name: str) -> str:
        shape, node = SHAPES[name], nodes[name]
        ends = shape is not None and shape.deleted_ago is not None and by_our_rules(shape, flags)[0] != KEPT
        try:
            with ending_soon(server, node, ends=ends):
                drain(task_of(node, api, recorder, flags.policy))
        except DrainError as error:
            return outcome(server, node, failed="no pod was touched" in error.message)
        return outcome(server, node, failed=False)

    with ThreadPoolExecutor(4) as pool:
        return dict(zip(nodes, pool.map(one, nodes), strict=True))


@pytest.mark.sample(3)
@pytest.mark.parametrize("flags", CHOSEN, ids=str)
def test_every_shape_ends_as_with_kubectl(
    flags: Flags, quick: StandaloneApi, tmp_path: Path, recorder: Recorder
) -> None:
    nodes_of_theirs, nodes_of_ours = prepare(quick, "theirs"), prepare(quick, "ours")
    with ending_what_is_asked_for(quick):
        theirs = by_kubectl(quick, tmp_path, nodes_of_theirs, flags)
    ours = by_us(quick, nodes_of_ours, flags, recorder)

    assert theirs == {name: by_kubectls_rules(shape, flags) for name, shape in SHAPES.items()}
    differences = {name: why for name, shape in SHAPES.items() if (why := by_our_rules(shape, flags)[1])}
    assert {name for name in SHAPES if ours[name] != theirs[name]} == set(differences)
    assert {ours[name] for name in differences} <= {REMOVED}
    check_requests(quick, flags)


def test_every_shape_is_judged_as_by_kubectl_whatever_the_flags(quick: StandaloneApi) -> None:
    """All 96 combinations; where we differ, there is a reason, and every reason occurs."""
    add_node(quick, "n1")
    for name, shape in SHAPES.items():
        if shape is not None:
            place(quick, "n1", name, shape)
    api = connect(quick.kubeconfig, None)
    pods, daemon_sets, now = read_node_pods(api, "n1"), read_daemon_sets(api), SystemClock().now()
    words = {Action.EVICT: REMOVED, Action.LEAVE: KEPT, Action.REFUSE: REFUSED}
    reasons = set()
    for flags in EVERY:
        verdicts = judge_all(pods, DrainRules.of(flags.policy, daemon_sets, now=now))
        for verdict in verdicts:
            expected, why = by_our_rules(SHAPES[verdict.pod.name], flags)
            assert words[verdict.action] == expected, (verdict.pod.name, str(flags), why)
            check_words(verdict, flags)
            reasons.add(why)
    assert reasons == {"", DECIDED}


def check_words(verdict: PodVerdict, flags: Flags) -> None:
    """Whoever is refused is told which flag would let it go; whoever goes, all that this costs."""
    shape = SHAPES[verdict.pod.name]
    assert shape is not None
    said = " ".join((verdict.message, *verdict.warnings))
    if verdict.action is Action.REFUSE:
        unforced = shape.owned is None or verdict.pod.name.startswith("ds-gone")
        assert ("--force" in verdict.message) == (unforced and not flags.force)
        assert ("--delete-emptydir-data" in verdict.message) == (verdict.pod.has_empty_dir and not flags.emptied)
    if verdict.action is not Action.EVICT or shape.finished or shape.deleted_ago is not None:
        return
    assert ("emptyDir data will be lost" in said) == verdict.pod.has_empty_dir
    assert ("has no controller" in said) == (shape.owned is None)
    assert ("no longer exists" in said) == verdict.pod.name.startswith("ds-gone")
    assert len(verdict.warnings) == verdict.pod.has_empty_dir + (shape.owned is None) + ("gone" in verdict.pod.name)
    assert not verdict.warnings or flags.force or flags.emptied


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
    assert not [record for record in ways[not flags.deleting] if record.target.name.startswith("ours")]
    assert len({record.target.name for record in ours}) == len(ours)
    assert {f'"gracePeriodSeconds":{GRACE}' in record.body for record in ours} == {flags.grace}
