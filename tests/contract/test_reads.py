import time

import pytest

from tests.contract.cluster import LABEL, Cluster

NODES = "/api/v1/nodes"


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("zone=a", "a"),
        ("zone==a", "a"),
        ("zone!=a", "bc"),
        ("zone in (a, b)", "ab"),
        ("zone notin (a,b)", "c"),
        ("big", "b"),
        ("!big", "ac"),
        ("zone!=a,!big", "c"),
        ("zone in ()", ""),
        ("big in ()", "b"),
    ],
)
def test_label_selectors(cluster: Cluster, selector: str, expected: str) -> None:
    names = {zone: cluster.node(zone=zone, **({"big": ""} if zone == "b" else {})) for zone in "abc"}
    found = cluster.get(NODES, labelSelector=f"{LABEL}={cluster.run},{selector}").items
    assert sorted(found) == sorted(names[zone] for zone in expected)


def test_pages_show_one_state(cluster: Cluster) -> None:
    namespace, configmaps = cluster.namespace(), {}
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for name in ("aa", "bb", "cc"):
        configmaps[name] = cluster.make(path, {"metadata": {"name": name}})
    first = cluster.get(path, limit=2)
    assert first.items == ["aa", "bb"]

    cluster.make(path, {"metadata": {"name": "cd"}})
    cluster.send("DELETE", f"{path}/cc")
    rest = cluster.get(path, limit=100, **{"continue": first.body["metadata"]["continue"]})

    assert "cc" in rest.items
    assert "cd" not in rest.items
    assert rest.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]
    assert "continue" not in rest.body["metadata"]


def test_watch_tells_what_happened_since_a_version(cluster: Cluster) -> None:
    version = cluster.get(NODES, limit=1).body["metadata"]["resourceVersion"]
    name = cluster.node(w="1")
    cluster.patch(f"{NODES}/{name}", {"metadata": {"labels": {"w": "2"}}})
    cluster.send("DELETE", f"{NODES}/{name}")

    events = cluster.watch(NODES, seconds=1, resourceVersion=version, fieldSelector=f"metadata.name={name}")

    types = [event["type"] for event in events]
    assert (types[0], types[-1]) == ("ADDED", "DELETED")
    assert "MODIFIED" in types
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))


def test_watch_tells_of_objects_that_leave_its_selector(cluster: Cluster) -> None:
    version = cluster.get(NODES, limit=1).body["metadata"]["resourceVersion"]
    name = cluster.node(w="in")
    cluster.patch(f"{NODES}/{name}", {"metadata": {"labels": {"w": "out"}}})

    events = cluster.watch(NODES, seconds=1, resourceVersion=version, labelSelector=f"w=in,{LABEL}={cluster.run}")

    assert events[0]["type"] == "ADDED"
    assert events[-1]["type"] == "DELETED"
    assert events[-1]["object"]["metadata"]["name"] == name


def test_a_watch_ends_in_time_and_bookmarks_before(cluster: Cluster) -> None:
    name = cluster.node()
    version = cluster.get(f"{NODES}/{name}").body["metadata"]["resourceVersion"]
    began = time.monotonic()
    events = cluster.watch(
        NODES, seconds=4, resourceVersion=version, allowWatchBookmarks="true", fieldSelector="metadata.name=none"
    )
    assert 3 < time.monotonic() - began < 60
    assert {event["type"] for event in events} <= {"BOOKMARK"}
    # Old servers promise none, and have nothing to say where nothing has happened since the watch began.
    cluster.needs(1, 27)
    assert len(events) == 1
    assert int(events[0]["object"]["metadata"]["resourceVersion"]) >= int(version)
