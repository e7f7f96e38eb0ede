from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.lab.api.deletion import begin_deletion
from rollout.lab.api.resources import CONFIGMAPS, NODES, PODS
from rollout.lab.api.store import (
    Change,
    ChangeType,
    CompactedError,
    Json,
    ObjectStore,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_store(history: int = 1000) -> ObjectStore:
    return ObjectStore(now=lambda: NOW, history=history)


def a_pod(name: str, namespace: str = "n", **spec: object) -> Json:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def names(objects: object) -> list[str]:
    return [obj["metadata"]["name"] for obj in objects]  # type: ignore[attr-defined]


def test_versions_grow_only_with_changes() -> None:
    store = a_store()
    pod = store.create(PODS, a_pod("p"))
    assert store.put(PODS, pod) is pod
    assert store.revision == int(pod["metadata"]["resourceVersion"])
    changed = store.put(PODS, {**pod, "spec": {"nodeName": "a"}})
    assert int(changed["metadata"]["resourceVersion"]) == store.revision > int(pod["metadata"]["resourceVersion"])


def test_every_observer_sees_changes_in_order() -> None:
    store, seen = a_store(), list[tuple[str, int]]()

    def writer(change: Change) -> None:
        seen.append(("first", change.revision))
        if change.type is ChangeType.ADDED and change.resource is NODES:
            store.create(CONFIGMAPS, {"metadata": {"name": "c", "namespace": "n"}})

    store.subscribe(writer)
    store.subscribe(lambda change: seen.append(("second", change.revision)))
    store.create(NODES, {"metadata": {"name": "a"}})
    assert seen == [("first", 2), ("second", 2), ("first", 3), ("second", 3)]


def test_the_past_is_known_until_it_is_compacted() -> None:
    store = a_store()
    pod = store.create(PODS, a_pod("p"))
    then = store.revision
    store.put(PODS, {**pod, "spec": {"nodeName": "a"}})
    store.create(PODS, a_pod("q"))
    assert store.items_at(PODS, then) == [pod]
    store.remove(PODS, "p", "n")
    assert store.items_at(PODS, then) == [pod]
    assert [change.type for change in store.changes_since(then, PODS)] == ["MODIFIED", "ADDED", "DELETED"]
    store.compact()
    with pytest.raises(CompactedError):
        store.items_at(PODS, then)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["set", "drop"]), st.integers(0, 3)), max_size=30))
def test_any_past_state_can_be_rebuilt(steps: list[tuple[str, str, int]]) -> None:
    store = a_store()
    states = {store.revision: list(store.items(CONFIGMAPS))}
    for name, action, value in steps:
        current = store.get(CONFIGMAPS, name, "n")
        if action == "drop" and current is not None:
            store.remove(CONFIGMAPS, name, "n")
        elif action == "set":
            obj = {"metadata": {"name": name, "namespace": "n"}, "data": {"v": str(value)}}
            if current is None:
                store.create(CONFIGMAPS, obj)
            else:
                store.put(CONFIGMAPS, {**current, "data": obj["data"]})
        states[store.revision] = list(store.items(CONFIGMAPS))
    for revision, state in states.items():
        assert store.items_at(CONFIGMAPS, revision) == state
        assert (
            store.items_at(CONFIGMAPS, revision, "n", after="n/a", limit=2)
            == [obj for obj in state if obj["metadata"]["name"] > "a"][:2]
        )
        assert store.count_at(CONFIGMAPS, revision) == len(state)


@pytest.mark.parametrize(
    ("pod", "grace", "left"),
    [
        (a_pod("p", nodeName="a"), None, 30),
        (a_pod("p", nodeName="a", terminationGracePeriodSeconds=5), None, 5),
        (a_pod("p", nodeName="a"), 7, 7),
        (a_pod("p", nodeName="a"), -1, 1),
        (a_pod("p", nodeName="a"), 0, None),
        (a_pod("p"), None, None),
        ({**a_pod("p", nodeName="a"), "status": {"phase": "Failed"}}, None, None),
    ],
)
def test_grace_of_pods(pod: Json, grace: int | None, left: int | None) -> None:
    store = a_store()
    after = begin_deletion(store, PODS, store.create(PODS, pod), grace_seconds=grace)
    if left is None:
        assert after is None
        assert store.items(PODS) == []
    else:
        assert after is not None
        assert after["metadata"]["deletionGracePeriodSeconds"] == left
