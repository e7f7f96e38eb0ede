"""The lab's API against 80 exchanges recorded from a real kube-apiserver 1.36, replayed in order.

What differs by nature is normalised, and nothing else:

| what                                   | how
|
|----------------------------------------|------------------------------------------------------------------|
| uid, resourceVersion, continue token   | in requests translated to the lab's; in answers: the same
type   | | uids quoted in messages                | any uid
| | timestamps                             | both set or both null
| | serverAddress, generated name suffixes | left out
| | managedFields                          | left out of the recording: the lab does not keep them
| | ages in tables                         | left out
| | timeoutSeconds of watches              | shortened to one second
|

What the lab does otherwise on purpose:

| what                                   | why
|
|----------------------------------------|------------------------------------------------------------------|
| discovery lists fewer groups/resources | it serves a part of the API; what it lists is alike
| | defaults of pods and nodes             | those that nobody here reads are left out
| | storageVersionHash                     | says something about etcd's encoding, of which there is
none     | | descriptions of table columns          | prose; the lab has its own
| | containers' statuses                   | all are as ready as their pod, and READY counts them so
| | Warning headers                        | about fields unknown to a schema; the lab has no schema
| | continue tokens                        | its own; one that it has not given is one that has
expired       | | taints without an effect               | kubectl refuses them itself
| | a body that is no object               | another sentence
|

The recording holds the requests that matter, not those that prepared them; `PREPARATION` makes up
for those, and for what the real server's controllers did meanwhile.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
import urllib3

from tests.standalone_api import StandaloneApi, standalone_api

Json = dict[str, Any]
DATA = Path(__file__).parent / "data" / "apiserver-1.36.jsonl"
NOT_KEPT = {"bad continue", "delete taint directive", "malformed body"}
EXCHANGES: list[Json] = [
    exchange
    for line in DATA.read_text().splitlines()
    if (exchange := json.loads(line))["name"] not in NOT_KEPT
]
# Recorded while the cluster held one node, though it stands last in the file.
EARLY = "watch from version 1"
DISCOVERY = frozenset(
    {
        "resources of /api/v1",
        "resources of /apis/policy/v1",
        "resources of /apis/apps/v1",
        "resources of /apis/coordination.k8s.io/v1",
    }
)

STRATEGIC = "application/strategic-merge-patch+json"
PODS = "/api/v1/namespaces/rec/pods"
BUDGETS = "/apis/policy/v1/namespaces/rec/poddisruptionbudgets"


class Replay:
    """A client that speaks the recording's versions and uids to the lab."""

    def __init__(self, api: StandaloneApi) -> None:
        self.url = api.server.url
        self.token = api.token
        self.http = urllib3.PoolManager(cert_reqs="CERT_NONE", assert_hostname=False, retries=False)
        self.translations: dict[str, str] = {}

    def send(self, request: Json, *, token: str | None = "") -> urllib3.BaseHTTPResponse:
        headers = {"Accept": request.get("accept", "application/json")}
        if token is not None:
            headers["Authorization"] = f"Bearer {token or self.token}"
        body = None
        if "body" in request:
            headers["Content-Type"] = request["content_type"]
            body = json.dumps(self.translated(request["body"])).encode()
        url = self.url + self.translated_path(request["path"])
        return self.http.request(request["method"], url, body=body, headers=headers)

    def prepare(
        self, method: str, path: str, body: Json | None = None, content_type: str = ""
    ) -> None:
        request: Json = {"method": method, "path": path}
        if body is not None:
            request |= {"body": body, "content_type": content_type or "application/json"}
        answer = self.send(request)
        assert answer.status in {200, 201}, answer.data

    def translated(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.translated(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.translated(each) for each in value]
        return self.translations.get(value, value) if isinstance(value, str) else value

    def translated_path(self, path: str) -> str:
        parts = urlsplit(path)
        pairs = parse_qsl(parts.query)
        query = {
            key: "1" if key == "timeoutSeconds" else self.translations.get(value, value)
            for key, value in pairs
        }
        return f"{parts.path}?{urlencode(query)}" if query else parts.path

    def learn(self, recorded: Any, answered: Any) -> None:
        """Note which of the lab's uids, versions and tokens stand for which recorded ones."""
        if isinstance(recorded, dict) and isinstance(answered, dict):
            for key in recorded.keys() & answered.keys():
                if key in {"uid", "resourceVersion", "continue"} and recorded[key] != "1":
                    self.translations[recorded[key]] = answered[key]
                self.learn(recorded[key], answered[key])
        elif isinstance(recorded, list) and isinstance(answered, list):
            for one, other in zip(recorded, answered, strict=False):
                self.learn(one, other)


def _node(replay: Replay, name: str) -> None:
    labels = {"kubernetes.io/hostname": name, "zone": "b"}
    replay.prepare(
        "POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "spec": {}}
    )


def _pod(replay: Replay, name: str, *, running: bool = True) -> None:
    spec = {
        "containers": [{"image": "i", "name": "c"}],
        "nodeName": "rec-1",
        "terminationGracePeriodSeconds": 30,
    }
    replay.prepare(
        "POST", PODS, {"metadata": {"name": name, "labels": {"app": name[0]}}, "spec": spec}
    )
    if running:
        _run(replay, name)


def _run(replay: Replay, name: str, phase: str = "Running") -> None:
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}
    replay.prepare("PATCH", f"{PODS}/{name}/status", {"status": status}, STRATEGIC)


def _budget(replay: Replay, name: str, rule: Json, app: str) -> None:
    spec = {**rule, "selector": {"matchLabels": {"app": app}}}
    replay.prepare("POST", BUDGETS, {"metadata": {"name": name}, "spec": spec})


def _budget_status(
    replay: Replay, *, allowed: int, healthy: int, desired: int, expected: int
) -> None:
    condition = {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }
    status = {
        "conditions": [condition],
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptedPods": None,
        "disruptionsAllowed": allowed,
        "expectedPods": expected,
        "observedGeneration": 1,
    }
    path = f"{BUDGETS}/b/status"
    replay.prepare("PATCH", path, {"status": status}, "application/merge-patch+json")


def _three_nodes(replay: Replay) -> None:
    _node(replay, "rec-2")
    _node(replay, "rec-3")


def _labelled_meanwhile(replay: Replay) -> None:
    replay.prepare("PATCH", "/api/v1/nodes/rec-2", {"metadata": {"labels": {"x": "y"}}}, STRATEGIC)


def _node_controller_annotates(replay: Replay) -> None:
    patch = {"metadata": {"annotations": {"node.alpha.kubernetes.io/ttl": "0"}}}
    for name in ("rec-1", "rec-2", "rec-3"):
        replay.prepare("PATCH", f"/api/v1/nodes/{name}", patch, STRATEGIC)


def _namespace(replay: Replay) -> None:
    replay.prepare("POST", "/api/v1/namespaces", {"metadata": {"name": "rec"}})


def _running_pods(replay: Replay) -> None:
    _run(replay, "a0")
    _pod(replay, "a1")
    _pod(replay, "a2")


def _unprocessed_budget(replay: Replay) -> None:
    for name in ("b0", "b1", "b2"):
        _pod(replay, name)
    _budget(replay, "b", {"maxUnavailable": 1}, "b")


def _budget_that_allows_one(replay: Replay) -> None:
    replay.prepare("DELETE", f"{BUDGETS}/b")
    _budget(replay, "b", {"minAvailable": 2}, "b")
    _budget_status(replay, allowed=1, healthy=3, desired=2, expected=3)


def _two_budgets(replay: Replay) -> None:
    _pod(replay, "c0")
    for name in ("c1", "c2"):
        _budget(replay, name, {"minAvailable": 1}, "c")


def _third_node_goes(replay: Replay) -> None:
    replay.prepare("PATCH", "/api/v1/nodes/rec-3", {"metadata": {"labels": {"w": "1"}}}, STRATEGIC)
    replay.prepare("DELETE", "/api/v1/nodes/rec-3")


def _node_controller_untaints(replay: Replay) -> None:
    for name in ("rec-1", "rec-3"):
        replay.prepare("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, STRATEGIC)


PREPARATION: dict[str, Callable[[Replay], None]] = {
    "list nodes by label": _three_nodes,
    "taint by strategic patch": _labelled_meanwhile,
    "status patch cannot change spec": _node_controller_annotates,
    "create lease": _namespace,
    "pods of a node": _running_pods,
    "budget before its controller saw it": _unprocessed_budget,
    # its controller fails
    "budget of pods without controller": partial(
        _budget_status, allowed=0, healthy=3, desired=0, expected=0
    ),
    "budget status": _budget_that_allows_one,
    # the controller has counted
    "eviction 2 of allowed 1": partial(_budget_status, allowed=0, healthy=2, desired=2, expected=3),
    "eviction of a pending pod, budget at zero": partial(_run, name="b2", phase="Pending"),
    "eviction under two budgets": _two_budgets,
    "delete with wrong uid": partial(_pod, name="d0", running=False),
    "delete dry run": _node_controller_untaints,
    "watch from a version": _third_node_goes,
}
TOKENS: dict[str, str | None] = {"no token": None, "wrong token": "nobody-has-this"}

_TIMES = re.compile(r"(Timestamp|Time)$")
_UID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_LEFT_OUT = {"serverAddress", "storageVersionHash", "description", "managedFields"}


def normalised(value: Any, key: str = "") -> Any:
    """The part of a value that must be alike."""
    if key in {"uid", "resourceVersion", "continue"} or (_TIMES.search(key) and value is not None):
        return type(value).__name__
    if key == "message":
        return _UID.sub("uid", value)
    if key == "cells":
        return [value[0], *value[2:4], *value[5:]]
    if isinstance(value, dict):
        kept = {
            name: normalised(each, name) for name, each in value.items() if name not in _LEFT_OUT
        }
        if "generateName" in kept:
            kept["name"] = kept["name"][: len(kept["generateName"])]
        return kept
    if isinstance(value, list):
        return [normalised(each) for each in value]
    return value


def body_of(answer: urllib3.BaseHTTPResponse) -> Any:
    text = answer.data.decode()
    return (
        json.loads(text) if answer.headers["Content-Type"].startswith("application/json") else text
    )


def shape(recorded: Json) -> Any:
    return recorded["lines"] if "lines" in recorded else recorded["body"]


def alike(answered: Any, recorded: Any, *, discovery: bool) -> bool:
    """Whether the lab says nothing else: of an object perhaps less than a real server, of a refusal
    the same.
    """
    if isinstance(answered, dict) and isinstance(recorded, dict):
        whole = recorded.get("kind") == "Status"
        fits = answered.keys() == recorded.keys() if whole else answered.keys() <= recorded.keys()
        return fits and all(
            alike(answered[key], recorded[key], discovery=discovery) for key in answered
        )
    if isinstance(answered, list) and isinstance(recorded, list):
        if discovery:
            return all(
                any(alike(one, other, discovery=True) for other in recorded) for one in answered
            )
        pairs = zip(answered, recorded, strict=False)
        return len(answered) == len(recorded) and all(
            alike(*pair, discovery=False) for pair in pairs
        )
    return bool(answered == recorded)


def ordered() -> list[Json]:
    rest = [exchange for exchange in EXCHANGES if exchange["name"] != EARLY]
    early = next(exchange for exchange in EXCHANGES if exchange["name"] == EARLY)
    at = next(index for index, exchange in enumerate(rest) if exchange["name"] == "create node") + 1
    return [*rest[:at], early, *rest[at:]]


def difference(replay: Replay, exchange: Json) -> str:
    """Replay one exchange; what of the lab's answer is not as recorded."""
    name = exchange["name"]
    recorded = exchange["response"]
    if name in PREPARATION:
        PREPARATION[name](replay)
    answer = replay.send(exchange["request"], token=TOKENS.get(name, ""))
    if "lines" in recorded:
        answered: Any = [json.loads(line) for line in answer.data.decode().splitlines()]
    else:
        answered = body_of(answer)
    replay.learn(shape(recorded), answered)
    given = (answer.status, answer.headers["Content-Type"], answer.headers.get("Retry-After"))
    headers = recorded["headers"]
    if given != (recorded["status"], headers["content-type"], headers.get("retry-after")):
        return f"{name}: {given}, {answer.data!r}"
    one = normalised(answered)
    other = normalised(shape(recorded))
    return "" if alike(one, other, discovery=name in DISCOVERY) else f"{name}: {one} is not {other}"


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
def test_answers_are_as_recorded(tmp_path: Path) -> None:
    with standalone_api(tmp_path) as api:
        replay = Replay(api)
        assert [told for exchange in ordered() if (told := difference(replay, exchange))] == []
