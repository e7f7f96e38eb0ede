"""The rights that `rollout manifests fleetlock` prints are those that the server uses: each of them, and no other.

As of `rollout manifests`, held on the lab that judges by the printed roles: see `test_used_rights`.
"""

import json
from functools import partial
from pathlib import Path

from rollout.errors import ExitCode
from rollout.lab.api.access import Grant, grants_of
from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.scenario import load_scenario
from tests.conftest import StartLab
from tests.ended import end_of, start
from tests.server.serving import reboot, serving
from tests.used_rights import single, used

SCENARIO = Path(__file__).with_name("rights.yaml")
GATES = ("--exclude-from-load-balancers", "1s", "--blocking-pod-selector", "app=nobody")
QUICK = ("--lease-duration", "3s", "--health-checks", "1", "--max-failures", "3")
# An Event that is told again within its time is counted up; here each is told once.
TOLD_AGAIN = ("patch", "events")


def printed(home: Path, variables: dict[str, str]) -> tuple[Grant, ...]:
    words = ("manifests", "fleetlock", "--image", "registry.example/node-rollout:1", "-o", "json")
    ended = end_of(start(home, variables, words))
    assert ended.code == ExitCode.OK, ended.stderr
    return grants_of(item for item in json.loads(ended.stdout)["items"] if item["kind"].endswith("Role"))


def test_each_right_that_is_printed_is_used_and_no_other(start_lab: StartLab, tmp_path: Path) -> None:
    """One host comes back updated, others on their old version: the first failure makes the memory, the next adds."""
    lab = start_lab(load_scenario(str(SCENARIO)), speed=30)
    grants = printed(tmp_path, lab.environment)
    lab.call(lambda: setattr(lab.api.access, "grants", grants))
    for node in ("worker-2", "worker-3"):
        lab.call(partial(lab.machines[node].inflict, HostFaults(reboot=RebootFault.ROLLS_BACK)))
    with serving(lab, tmp_path, *QUICK, *GATES) as server:
        for node in ("worker-1", "worker-2", "worker-3"):
            server.await_grant(node)
            reboot(lab, node)
            server.await_release(node)
        assert server.end() == 0
    acts = used(lab)
    assert [act for act in acts if not any(grant.covers(act) for grant in grants)] == []
    idle = [right for right in single(grants) if not any(right.covers(act) for act in acts)]
    assert [(*right.verbs, *right.resources) for right in idle] in ([], [TOLD_AGAIN])
