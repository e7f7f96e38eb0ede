"""Reboots that something else than update_engine asks for, on machines that really reboot."""

import json

from tests.e2e.cluster import Cluster
from tests.e2e.conftest import Rollout
from tests.e2e.machines import Machines

JSON = ("-o", "json", "--ready-timeout", "30s")
MARKER, SENTINEL, STAYS = "/run/reboot-required", "/run/needs-restart", "/var/lib/needs-restart"


def test_a_marker_file_goes_with_the_boot(rollout: Rollout, cluster: Cluster, machines: Machines) -> None:
    machine = machines["worker-1"]
    machine.clear()
    flags = ("--set", "detect.sources=update-engine,reboot-required,rpm-ostree", "--node", "worker-1")
    assert json.loads(rollout("status", "-o", "json", *flags).stdout)["nodes"][0]["needs_reboot"] is False
    machine.put(MARKER, "*** System restart required ***\n")
    machine.put(f"{MARKER}.pkgs", "linux-image-amd64\nlibc6\nlibc6\n")
    ended = rollout("apply", "--yes", *flags, *JSON)
    assert ended.code == 0, ended.stderr
    (planned,) = ended.plan["waves"][0]["nodes"]
    assert planned["detected_by"] == ["reboot-required"]
    assert planned["detail"] == "/run/reboot-required for linux-image-amd64, libc6"
    assert not machine.has(MARKER)
    assert cluster.scoreboard().clean
    assert rollout("plan", *flags, "--detailed-exitcode").code == 0


def test_an_own_command_decides_before_and_after(rollout: Rollout, cluster: Cluster, machines: Machines) -> None:
    for name, path in (("worker-1", SENTINEL), ("worker-2", STAYS)):
        machines[name].put(path)
    command = ("--set", "detect.sources=command", "--set", f"detect.command=test -e {SENTINEL} -o -e {STAYS}")
    ended = rollout("apply", "--yes", "--max-failures", "9", *command, *JSON)
    machines["worker-2"].remove(STAYS)
    assert ended.outcomes == {"worker-1": "succeeded", "worker-2": "rolled-back"}
    assert "not proven by command" in ended.failures["worker-2"]["message"]
    assert cluster.scoreboard().clean
