"""A run tells how many pods it moved, and how many of them more than once, as the cluster has seen it."""

from collections.abc import Callable

import msgspec

from rollout.lab.api.resources import VOLUMEATTACHMENTS
from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario, Workload, WorkloadKind, load_scenario
from tests.apply.conftest import Rollout

QUICK = ("--settle-timeout", "20s", "--set", "waves.health-checks=1")

Started = Callable[[Scenario | str, int], Lab]


def test_the_summary_and_the_history_count_what_the_cluster_has_seen(started: Started, rollout: Rollout) -> None:
    lab = started("typical", 4)
    ended = rollout(lab, "apply", "--yes", "-o", "json", *QUICK)
    assert ended.code == 0, ended.stderr
    summary = ended.summary
    scores = lab.scoreboard()
    # whatever leaves the first node goes to one that waits
    assert scores.moved_twice > 0
    assert (summary["evictions"], summary["moved_twice"]) == (scores.evictions, scores.moved_twice)
    assert summary["pods_to_move"] == ended.plan["summary"]["pods_to_move"] == scores.evictions - scores.moved_twice
    # what each owner's pods took to end: the next plan's estimates go by it
    endings = {line["node"]: line["endings"] for line in ended.lines if "endings" in line}
    assert endings.keys() == {node["name"] for wave in ended.plan["waves"] for node in wave["nodes"]}
    owners = {owner for told in endings.values() for owner in told}
    assert {owner.partition("/")[0] for owner in owners} == {"ReplicaSet", "StatefulSet"}
    assert all(0 <= seconds < 600 for told in endings.values() for seconds in told.values())
    told = rollout(lab, "history", ended.plan["plan_id"])
    sentence = (
        f"{summary['pods_to_move']} pods had to move: {scores.evictions} evictions, "
        f"{scores.moved_twice} of them of pods that came during the run"
    )
    assert sentence in told.stdout, told.stdout


def test_what_a_node_has_attached_is_detached_before_its_host_goes_down(started: Started, rollout: Rollout) -> None:
    labels = {"kubernetes.io/os": "linux"}
    disk = Workload(kind=WorkloadKind.DEPLOYMENT, name="disk", volume_in=labels)
    lab = started(msgspec.structs.replace(load_scenario("default"), workloads=(disk,)), 3)

    def attached() -> list[str]:
        return [str(one["spec"]["nodeName"]) for one in lab.call(lambda: lab.store.items(VOLUMEATTACHMENTS))]

    (node,) = attached()
    ended = rollout(lab, "apply", "--yes", "-o", "json", *QUICK, "--node", node)
    assert ended.code == 0, ended.stderr
    steps = [line["detail"] for line in ended.lines if line["type"] == "step"]
    assert "waiting for 1 volumes to detach" in steps
    assert attached() != [node]
