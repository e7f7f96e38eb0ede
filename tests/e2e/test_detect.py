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
