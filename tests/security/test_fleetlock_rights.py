"""The rights that `rollout manifests fleetlock` prints are those that the server uses: each of them, and no other.

As of `rollout manifests`, held on the lab that judges by the printed roles: see `test_used_rights`.
"""

import json
import signal
from pathlib import Path

import pytest

from rollout.errors import ExitCode
from rollout.execution.events import REASONS
from rollout.lab.api.access import Grant, grants_of
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import CONFIGMAPS, EVENTS
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from rollout.model.marks import MEMORY_NAME
from rollout.model.progress import Phase
from tests.conftest import StartLab
from tests.ended import invoked
from tests.server.serving import Server, await_true, reboot, serving
from tests.used_rights import single, used

pytestmark = pytest.mark.exhaustive

SCENARIO = Path(__file__).with_name("rights.yaml")
GATES = ("--set", "drain.exclude-from-load-balancers=1s", "--set", "gates.blocking-pod-selector=app=nobody")
QUICK = ("--set", "lock.duration=3s", "--set", "waves.health-checks=1", "--max-failures", "3", "--drain-timeout", "15s")
# An Event that another process has told before is counted up.
TOLD_AGAIN = ("patch", "events")


def printed(home: Path, variables: dict[str, str]) -> tuple[Grant, ...]:
    words = ("manifests", "fleetlock", "--image", "registry.example/node-rollout:1", "-o", "json")
    ended = invoked(home, variables, words)
    assert ended.code == ExitCode.OK, ended.stderr
    return grants_of(item for item in json.loads(ended.stdout)["items"] if item["kind"].endswith("Role"))


def reasons(lab: Lab, node: str) -> set[str]:
    """Of the Events that tell of this node."""
    events = lab.call(lambda: lab.store.items(EVENTS))
    return {event["reason"] for event in events if event["involvedObject"]["name"] == node}


def begin_in_vain(server: Server, node: str) -> None:
    """Ask until its drain has begun, and wait until its failure is remembered."""

    def is_remembered() -> bool:
        memory = server.lab.call(lambda: server.lab.store.get(CONFIGMAPS, MEMORY_NAME, "kube-system"))
        return memory is not None and node in json.dumps(memory["data"])

    await_true(lambda: server.pre_reboot(node).kind == "waiting_for_drain", f"{node} is begun", every=0.5)
    await_true(is_remembered, f"{node} is remembered")


def test_each_right_that_is_printed_is_used_and_no_other(start_lab: StartLab, tmp_path: Path) -> None:
    """One host reboots; two nodes cannot be drained: the first failure makes the memory, the next adds to it.

    In the drain of the first a server dies, and the next one tells of it anew.
    """
    lab = start_lab(load_scenario(str(SCENARIO)), speed=30)
    grants = printed(tmp_path, lab.environment)
    lab.call(lambda: setattr(lab.api.access, "grants", grants))
    with serving(lab, tmp_path, *QUICK, *GATES) as server:
        server.await_grant("worker-1")
        reboot(lab, "worker-1")
        server.await_release("worker-1")
        lab.inflict(ApiFault(answer=FaultAnswer.TOO_MANY_REQUESTS, verb="create", resource="pods/eviction"))
        await_true(lambda: server.pre_reboot("worker-2").kind == "waiting_for_drain", "worker-2 is begun", every=0.5)
        await_true(lambda: REASONS[Phase.DRAINING] in reasons(lab, "worker-2"), "its drain is told of")
        server.end(signal.SIGKILL)
        server.begin()
        await_true(lambda: TOLD_AGAIN in {(act.verb, act.resource) for act in used(lab)}, "it is told of again")
        for node in ("worker-2", "worker-3"):
            begin_in_vain(server, node)
        assert server.end() == 0
    acts = used(lab)
    assert [act for act in acts if not any(grant.covers(act) for grant in grants)] == []
    assert [right for right in single(grants) if not any(right.covers(act) for act in acts)] == []
