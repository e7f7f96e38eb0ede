"""The last look before a reboot waits, within bounds, for volumes to detach."""

from collections.abc import Callable

import msgspec

from rollout.lab.api.resources import VOLUMEATTACHMENTS
from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario, Workload, WorkloadKind, load_scenario
from rollout.lab.world.host import Timings
from tests.apply.conftest import Rollout

Started = Callable[[Scenario | str, int], Lab]


def test_what_a_node_has_attached_is_detached_before_its_host_goes_down(started: Started, rollout: Rollout) -> None:
    disk = Workload(kind=WorkloadKind.DEPLOYMENT, name="disk", volume_in={"kubernetes.io/os": "linux"})
    # two minutes: some seconds here, long after the drain has ended
    changes = {"workloads": (disk,), "timings": Timings(volume_detach=120)}
    lab = started(msgspec.structs.replace(load_scenario("default"), **changes), 3)

    def attached() -> list[str]:
        return [str(one["spec"]["nodeName"]) for one in lab.call(lambda: lab.store.items(VOLUMEATTACHMENTS))]

    (node,) = attached()
    ended = rollout(lab, "apply", "--yes", "-o", "json", "--node", node)
    assert ended.code == 0, ended.stderr
    steps = [line["detail"] for line in ended.lines if line["type"] == "step"]
    assert "waiting for 1 volumes to detach" in steps
    assert "is still attached" not in ended.stderr
    assert node not in attached()
