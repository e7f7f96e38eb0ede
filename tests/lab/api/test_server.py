import threading
import time

from rollout.lab.api.access import Denial
from rollout.lab.api.defaulting import with_defaults
from rollout.lab.api.resources import CONFIGMAPS
from tests.contract.cluster import Cluster
from tests.standalone_api import StandaloneApi

NODES = "/api/v1/nodes"
CONFIG = "/api/v1/namespaces/default/configmaps"


def fill(api: StandaloneApi, count: int, size: int = 0) -> None:
    def create() -> None:
        for number in range(count):
            metadata = {"name": f"c{number:04}", "namespace": "default"}
            api.store.create(CONFIGMAPS, with_defaults(CONFIGMAPS, {"metadata": metadata, "data": {"x": "x" * size}}))

    api.call(create)


def test_a_watch_from_forgotten_times_ends_with_an_error(api: StandaloneApi, client: Cluster) -> None:
    client.node()
    api.call(api.store.compact)
    (event,) = client.watch(NODES, seconds=5, resourceVersion=1)
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


def test_an_expired_page_offers_the_rest_as_it_is_now(api: StandaloneApi, client: Cluster) -> None:
    fill(api, 4)
    token = client.get(CONFIG, limit=2).body["metadata"]["continue"]
    client.send("DELETE", f"{CONFIG}/c0003")
    api.call(api.store.compact)
    expired = client.get(CONFIG, limit=2, **{"continue": token})
    assert (expired.status, expired.reason) == (410, "Expired")
    rest = client.get(CONFIG, limit=2, **{"continue": expired.body["metadata"]["continue"]})
    assert rest.items == ["c0002"]


def test_live_watches_hear_of_changes(api: StandaloneApi, client: Cluster) -> None:
    heard: list[str] = []

    def watch() -> None:
        events = client.watch(NODES, seconds=2, labelSelector="w", allowWatchBookmarks="true")
        heard.extend(event["type"] for event in events)

    thread = threading.Thread(target=watch)
    thread.start()
    while not api.call(lambda: api.server.requests.asked("watch")):
        time.sleep(0.01)
    name = client.node(w="1")
    client.patch(f"{NODES}/{name}", {"metadata": {"labels": {"w": "2"}}})
    client.node()
    client.patch(f"{NODES}/{name}", {"metadata": {"labels": {"w": None}}})
    client.patch(f"{NODES}/{name}", {"metadata": {"labels": {"w": "3"}}})
    client.send("DELETE", f"{NODES}/{name}")
    thread.join()
    assert heard == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]


def test_rights_can_be_taken_away(api: StandaloneApi, client: Cluster) -> None:
    denial = Denial(verb="create", resource="pods/eviction")
    api.call(lambda: api.server.access.denials.add(denial))
    pod = client.pod("default", client.node())
    refused = client.evict(pod)
    assert (refused.status, refused.reason) == (403, "Forbidden")
    name = pod.rpartition("/")[2]
    assert refused.body["message"] == (
        f'pods "{name}" is forbidden: User "lab-admin" cannot create resource "pods/eviction" '
        'in API group "" in the namespace "default"'
    )
    attributes = {"verb": "create", "resource": "pods", "subresource": "eviction"}
    review = {"spec": {"resourceAttributes": attributes}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert client.send("POST", path, review).body["status"] == {"allowed": False}


def test_requests_are_remembered(api: StandaloneApi, client: Cluster) -> None:
    name = client.node()
    client.patch(f"{NODES}/{name}", {"spec": {"unschedulable": True}})
    client.get(f"{NODES}/none", pretty="1")
    log = api.server.requests
    (patched,) = api.call(lambda: log.asked("patch", "nodes", name))
    assert (patched.status, patched.body) == (200, '{"spec": {"unschedulable": true}}')
    (missed,) = api.call(lambda: log.asked("get", "nodes", "none"))
    assert (missed.status, missed.query, missed.path) == (404, {"pretty": "1"}, f"{NODES}/none")
    assert len(api.call(lambda: log.asked("create", "nodes"))) == 1
