"""Someone else drains a node with kubectl beside a rollout, which keeps to the limit all the same."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rollout.lab.api.resources import NODES
from rollout.lab.api.store import Change, Json, timestamp
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, Started, command
from tests.ended import end_of
from tests.lab.api.test_kubectl import kubectl
from tests.state import PREFIX, is_cordoned, node_of, rebooted

pytestmark = pytest.mark.kubectl
WORKERS = ("--control-plane", "exclude")
APPLY = ("apply", "--yes", "-o", "json", *WORKERS)
DRAIN = ("--ignore-daemonsets", "--delete-emptydir-data", "--force")
CORDON = "node.kubernetes.io/unschedulable"


@dataclass
class Cordons:
    """The cordoned nodes, and the most there were when rollout had just cordoned one."""

    names: set[str] = field(default_factory=set)
    most: int = 0

    def changed(self, change: Change) -> None:
        if change.resource is not NODES:
            return
        name = change.obj["metadata"]["name"]
        if not change.obj["spec"].get("unschedulable"):
            self.names.discard(name)
            return
        is_new = name not in self.names
        self.names.add(name)
        is_ours = f"{PREFIX}cordoned-by-us" in (change.obj["metadata"].get("annotations") or {})
        if is_new and is_ours:
            self.most = max(self.most, len(self.names))


@contextmanager
def counted(lab: Lab, *cordoned: str) -> Iterator[Cordons]:
    cordons = Cordons({*cordoned})
    lab.call(lambda: lab.store.subscribe(cordons.changed))
    yield cordons
    lab.call(lambda: lab.store.unsubscribe(cordons.changed))


def set_condition(lab: Lab, node: str, kind: str, status: str, *, reason: str = "Firmware") -> None:
    """Set a condition of the Node, as a controller for maintenance does."""

    def put() -> None:
        body = node_of(lab, node)
        others = [found for found in body["status"]["conditions"] if found["type"] != kind]
        condition: Json = {"type": kind, "status": status, "reason": reason}
        condition["lastTransitionTime"] = timestamp(datetime.now(UTC))
        changed = {**body["status"], "conditions": [*others, condition]}
        lab.store.put(NODES, {**body, "status": changed})

    lab.call(put)


def workers_of(lab: Lab) -> set[str]:
    return {name for name in lab.machines if name.startswith("worker")}


def test_a_drain_that_has_begun_uses_up_the_limit(started: Started, rollout: Rollout) -> None:
    lab = started("default", 4)
    assert kubectl(lab, "drain", "worker-1", *DRAIN).returncode == 0
    refused = rollout(lab, *APPLY).ends(6)
    assert "worker-1" in refused.stderr
    assert "was cordoned by someone else at" in refused.stderr


def test_a_drain_that_has_begun_leaves_less_of_the_limit(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 5)
    assert kubectl(lab, "drain", "worker-1", *DRAIN).returncode == 0
    planned = rollout(lab, "plan", *WORKERS, "--max-unavailable", "2").ends(0)
    assert "! worker-1 was cordoned by someone else at" in " ".join(planned.stdout.split())
    with counted(lab, "worker-1") as cordons:
        rollout(lab, *APPLY, "--max-unavailable", "2").ends(0)
    assert cordons.most == 2
    assert is_cordoned(lab, "worker-1")
    assert rebooted(lab) == workers_of(lab) - {"worker-1"}


def test_a_drain_that_begins_while_a_rollout_runs_holds_the_next_node(
    started: Started, tmp_path: Path
) -> None:
    lab = started("default", 4)
    last = ""
    drained = ""
    was_waiting = False
    with counted(lab) as cordons:
        process = command(lab, tmp_path, *APPLY)
        assert process.stdout is not None
        for written in process.stdout:
            line = json.loads(written)
            if line["type"] == "plan":
                last = line["plan"]["waves"][-1]["nodes"][-1]["name"]
            if not drained and line.get("phase") == "draining":
                drained = last
                assert kubectl(lab, "drain", drained, *DRAIN).returncode == 0
            if line["type"] == "notice" and "waiting for nodes to be back" in line["message"]:
                was_waiting = True
                assert cordons.names == {drained}
                assert kubectl(lab, "uncordon", drained).returncode == 0
        ended = end_of(process)
    assert ended.code == 0, ended.stderr
    assert was_waiting
    assert cordons.most == 1
    assert rebooted(lab) >= workers_of(lab) - {drained}
