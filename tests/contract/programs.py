"""The real program on played Nodes: started, ended, and what is seen of the Nodes meanwhile and
afterwards.
"""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3

from rollout.lab.hosts.zincati import request_body
from rollout.lab.scenario import NodeGroup, Scenario, ScenarioBudget, ScenarioWorkload, WorkloadKind
from tests.contract.cluster import LABEL, Json
from tests.contract.played import Played
from tests.ended import start
from tests.server.conftest import Serving
from tests.waiting import wait_until

OTHERS = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
APART = {
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [OTHERS]}}
}
EMPTY_DIR = {"volumes": [{"name": "scratch", "emptyDir": {}}]}
SCENARIO = Scenario(
    description="Three nodes with a bit of everything that is evicted in its own way.",
    nodes=(NodeGroup(prefix="played", count=3),),
    workloads=(
        ScenarioWorkload(kind=WorkloadKind.DAEMON_SET, name="agent"),
        ScenarioWorkload(
            kind=WorkloadKind.DEPLOYMENT,
            name="web",
            replicas=3,
            budget=ScenarioBudget(max_unavailable=1),
        ),
        ScenarioWorkload(
            kind=WorkloadKind.STATEFUL_SET,
            name="db",
            replicas=2,
            spec=APART,
            budget=ScenarioBudget(min_available=1),
        ),
        ScenarioWorkload(kind=WorkloadKind.DEPLOYMENT, name="scratch", replicas=2, spec=EMPTY_DIR),
    ),
)


AT_ONCE = ("--max-unavailable", "100%", "-o", "json")


FLAGS = ("--allow", "idle", *AT_ONCE)


# No unattended pass reboots what nobody has asked for: see `ask_for_reboots`.
UNATTENDED = ("--set", "detect.sources=annotation", *AT_ONCE)


MARK = "node-rollout.dev/"


_LOOK_EVERY = 0.1


def started(played: Played, home: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    lock = ("--set", f"lock.namespace={played.namespaces[0]}", "--set", "lock.duration=3s")
    return start(home, {**played.environment, **variables}, [*arguments, *lock])


def ended(process: subprocess.Popen[str]) -> tuple[int, list[dict[str, Any]], str]:
    stdout, stderr = process.communicate(timeout=240)
    return process.returncode, [json.loads(line) for line in stdout.splitlines()], stderr


def ask_for_reboots(played: Played) -> None:
    for name in played.kubelets:
        played.cluster.patch(
            f"/api/v1/nodes/{name}", {"metadata": {"annotations": {f"{MARK}reboot-needed": "true"}}}
        )


def node(played: Played, name: str) -> Json:
    found: Json = played.cluster.get(f"/api/v1/nodes/{name}").body
    return found


def marks(played: Played, name: str) -> dict[str, str]:
    """What we have written on it, without our prefix."""
    annotations = node(played, name)["metadata"].get("annotations", {})
    return {
        key.removeprefix(MARK): value for key, value in annotations.items() if key.startswith(MARK)
    }


def assert_rebooted_once(played: Played, before: dict[str, int]) -> None:
    """Each since then, and all are in service."""
    assert played.reboots == {name: count + 1 for name, count in before.items()}
    assert_in_service(played)


def assert_in_service(played: Played, *, results: bool = True) -> None:
    """Nothing of a rollout is left but the result, which an aborted one does not write on every
    node.
    """
    for name in played.kubelets:
        seen = node(played, name)
        assert "unschedulable" not in seen["spec"]
        assert not any(taint["key"].startswith(MARK) for taint in seen["spec"].get("taints", []))
        assert not any(
            key.startswith(MARK) or "exclude" in key for key in seen["metadata"]["labels"]
        )
        ours = list(marks(played, name))
        assert ours == ["last-result"] or (not results and ours == [])
    namespace = played.namespaces[0]
    assert (
        played.cluster.get(f"/api/v1/namespaces/{namespace}/configmaps/node-rollout").status == 404
    )
    lease = played.cluster.get(
        f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/node-rollout"
    )
    assert not lease.body["spec"].get("holderIdentity")


def selector(played: Played) -> tuple[str, str]:
    return ("-l", f"{LABEL}={played.cluster.run}")


@dataclass
class Seen:
    """What stood on the Nodes at any time: `labels` by their keys, of those that had them all along
    or for a while.
    """

    most_cordoned: int = 0
    taints: set[tuple[str, str]] = field(default_factory=set)
    labels: dict[str, set[str]] = field(default_factory=dict)

    def look(self, nodes: list[Json]) -> None:
        self.most_cordoned = max(
            self.most_cordoned, sum(bool(each["spec"].get("unschedulable")) for each in nodes)
        )
        for each in nodes:
            name = each["metadata"]["name"]
            metadata = each["metadata"]
            self.taints |= {(name, taint["key"]) for taint in each["spec"].get("taints", [])}
            for key in metadata["labels"]:
                self.labels.setdefault(key, set()).add(name)


@contextmanager
def watched(played: Played) -> Iterator[Seen]:
    """Look at the played Nodes ten times a second."""
    seen = Seen()
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_EVERY):
            with suppress(urllib3.exceptions.HTTPError, OSError, KeyError):
                found = played.cluster.get(
                    "/api/v1/nodes", labelSelector=f"{LABEL}={played.cluster.run}"
                )
                seen.look(found.body["items"])

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield seen
    finally:
        over.set()
        looking.join()


# A FleetLock server on played Nodes.


@contextmanager
def serving(played: Played, home: Path, **variables: str) -> Iterator[Callable[[str, str], int]]:
    """A FleetLock server; given is what asks it as a node's host does, and returns the status of
    the answer.
    """
    words = ("fleetlock", "serve", "--listen", "127.0.0.1:0", *selector(played))
    server = Serving(started(played, home, *words, **variables))

    def ask(what: str, name: str) -> int:
        time.sleep(0.5)  # it is asked again and again
        return server.send(
            what, request_body(played.kubelets[name].machine.machine_id, "default")
        ).status

    try:
        yield ask
    finally:
        code = server.end()
    assert code == 0, server.said


def assert_a_host_that_asks_is_served(played: Played, home: Path, **variables: str) -> None:
    """One life over HTTP: the grant after the drain, one reboot, and the release after its proof."""
    name = min(played.kubelets)
    before = played.reboots
    with serving(played, home, **variables) as ask:
        wait_until(lambda: ask("pre-reboot", name) == 200, 90)
        assert node(played, name)["spec"]["unschedulable"]
        assert marks(played, name)["phase"] == "rebooting"
        played.reboot(name)
        wait_until(lambda: ask("steady-state", name) == 200, 90)
    assert played.reboots == {each: count + (each == name) for each, count in before.items()}
    assert_in_service(played, results=False)
