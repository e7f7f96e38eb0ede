"""Hosts in image mode: what bootc has staged is found by its digest, and the reboot is proven by it."""

import json

from rollout.errors import ExitCode
from rollout.lab.hosts.programs import digest_of
from tests.apply.conftest import Rollout, Started

BOOTC = ("--set", "detect.sources=bootc")
OLD = "42.20250901.0"
NEW = "42.20250915.0"


def test_hosts_in_image_mode_reboot_into_the_staged_digest(
    started: Started, rollout: Rollout
) -> None:
    """One boots the image, one comes back with the old one, and on one nobody may ask."""
    lab = started("bootc", 6)
    pair = ("--node", "worker-1", "--node", "worker-2")
    rows = json.loads(rollout(lab, "status", "-o", "json", *BOOTC).stdout)["nodes"]
    seen = {row["node"]: row for row in rows}
    assert seen["worker-1"]["state"] == "pending"
    assert seen["worker-1"]["detected_by"] == ["bootc"]
    assert (seen["worker-1"]["running_version"], seen["worker-1"]["staged_version"]) == (OLD, NEW)
    assert not seen["worker-3"]["judged"]
    doctor = rollout(lab, "doctor", *BOOTC, "--node", "worker-3").ends(ExitCode.ERROR)
    rule = "core ALL=(root) NOPASSWD: /usr/bin/bootc status --format json"
    assert rule in " ".join(doctor.stdout.split())
    quick = ("--yes", "-o", "json", "--max-failures", "9", "--set", "waves.health-checks=1")
    ended = rollout(lab, "apply", *BOOTC, *pair, *quick).ends(ExitCode.PARTIAL)
    assert ended.outcomes == {"worker-1": "succeeded", "worker-2": "rolled-back"}
    old, new = (digest_of(version).removeprefix("sha256:")[:12] for version in (OLD, NEW))
    assert ended.failures["worker-2"]["message"] == (
        f"the host rebooted, but the reboot was not verified by bootc: image {old} is booted, not {new}"
    )
    score = lab.scoreboard()
    assert {name for name, count in score.reboots.items() if count} == {"worker-1", "worker-2"}
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    again = json.loads(rollout(lab, "plan", "-o", "json", *BOOTC, "--node", "worker-1").stdout)
    (left,) = again["excluded"]
    assert (left["reason"], left["update"]["state"]) == ("no-update", "up-to-date")
