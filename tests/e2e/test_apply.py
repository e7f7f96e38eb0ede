"""Whole rollouts over machines that really reboot."""

import pytest

from tests.e2e.cluster import NAMES, Cluster
from tests.e2e.conftest import Rollout
from tests.e2e.machines import STAGED_VERSION, Machines, wait_for

JSON = ("-o", "json")


def test_six_machines(rollout: Rollout, cluster: Cluster, machines: Machines) -> None:
    boots = {machine.name: machine.booted for machine in machines}
    ended = rollout("apply", "--yes", *JSON)
    assert ended.code == 0, ended.stderr
    assert sorted(ended.summary["succeeded"]) == sorted(NAMES)
    assert {machine.os_version for machine in machines} == {STAGED_VERSION}
    assert all(machine.booted not in ("", boots[machine.name]) for machine in machines)
    seen = cluster.scoreboard()
    assert seen.clean
    assert seen.reboots == dict.fromkeys(NAMES, 1)
    assert seen.most_unavailable == 1
    assert not seen.rebooted_undrained
    after = rollout("plan")
    assert after.code == 0
    assert "4152.2.1" in rollout("status").stdout


@pytest.mark.sample
def test_slow_boot(rollout: Rollout, cluster: Cluster, machines: Machines) -> None:
    machines["worker-2"].write("next-boot-takes", "8")
    ended = rollout("apply", "--yes", "--node", "worker-2", *JSON)
    assert ended.code == 0, ended.stderr
    assert ended.summary["succeeded"] == ["worker-2"]
    assert any("waiting for the host" in detail for _, detail in ended.steps("worker-2"))
    assert cluster.scoreboard().clean


def test_host_that_does_not_come_back(rollout: Rollout, cluster: Cluster, machines: Machines) -> None:
    lost = machines["worker-1"]
    lost.stay_off_after_shutdown()
    workers = ("-l", "!node-role.kubernetes.io/control-plane", "--set", "drain.prefer-no-schedule-taint=false")
    ended = rollout("apply", "--yes", "--reboot-timeout", "8s", *workers, *JSON)
    assert ended.code == 4
    assert [failed["node"] for failed in ended.summary["failed"]] == ["worker-1"]
    assert "not back" in ended.summary["failed"][0]["message"]
    assert len(ended.summary["not_started"]) == 4
    assert cluster.scoreboard().cordons_left == ("worker-1",)
    lost.switch_on()
    wait_for(lambda: bool(lost.booted), "the machine after all", 60)


def test_rollback(rollout: Rollout, cluster: Cluster, machines: Machines) -> None:
    machines["worker-3"].write("next-boot-fails")
    ended = rollout("apply", "--yes", "--node", "worker-3", *JSON)
    assert ended.code == 4
    assert "did not take" in ended.summary["failed"][0]["message"]
    # It works as before: it is given back.
    assert not cluster.scoreboard().cordons_left
