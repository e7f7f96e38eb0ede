"""Nodes that go back to their previous version, on hosts with two partitions or two deployments: the real program."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from rollout.errors import ExitCode
from rollout.lab.api.resources import CONFIGMAPS
from rollout.lab.hosts.engine import UpdateEngine
from rollout.lab.hosts.faults import (
    HEALTHY,
    BusFault,
    HostFaults,
    RebootFault,
    SshFault,
    SudoFault,
)
from rollout.lab.lab import Lab
from rollout.lab.scenario import HostOverride, HostSelection, Scenario, load_scenario
from tests.apply.conftest import Rollout, Scrape, Started, killed_at
from tests.state import (
    annotations,
    inflict,
    is_cordoned,
    marks_of,
    rebooted,
    record,
    stored,
    unlock,
)

BAD = "4152.2.0"
BEFORE = "4081.2.0"
QUICK = ("--yes", "-o", "json", "--set", "waves.health-checks=1", "--max-unavailable", "3")
ROLLBACK = ("rollback", BAD, *QUICK)
FINALIZES = (
    "--set",
    "reboot.command=sudo -n rpm-ostree finalize-deployment --allow-missing-checksum",
)
# The commands on hosts that choose what boots next.
CHOICES = ("cgpt prioritize", "bootc rollback", "rpm-ostree rollback")


def updated(*, with_deployments: bool = True) -> Scenario:
    """Every host has been updated to the bad version, a few with images or deployments."""
    scenario = load_scenario("bad-update")
    hosts = scenario.hosts[: 3 if with_deployments else 1]
    return msgspec.structs.replace(scenario, hosts=hosts)


def choices(lab: Lab) -> dict[str, list[str]]:
    """The commands that have chosen what a host boots next, by host."""
    return {
        name: [line for line in machine.run_as_root if line.startswith(CHOICES)]
        for name, machine in lab.machines.items()
    }


def versions(lab: Lab) -> set[str]:
    return {machine.os_version for machine in lab.machines.values()}


def stage(lab: Lab, node: str, version: str = "4152.2.1") -> None:
    engine = UpdateEngine.with_staged(version, checked=1)
    lab.call(lambda: setattr(lab.machines[node], "update_engine", engine))


def replace_previous(lab: Lab, node: str) -> None:
    lab.call(partial(setattr, lab.machines[node], "previous_version", "4081.1.0"))


def garble_memory(lab: Lab) -> None:
    memory = stored(lab, CONFIGMAPS, "node-rollout-memory", "kube-system")
    lab.call(lambda: lab.store.put(CONFIGMAPS, {**memory, "data": {"memory.json": "garbled"}}))


def assert_clean(lab: Lab) -> None:
    score = lab.scoreboard()
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert score.killed == ()
    assert score.budgets_broken == ()
    assert record(lab) is None


def test_nodes_go_back_over_kills_and_their_version_is_held(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started(updated(), 8)
    planned = rollout(lab, "plan", "--rollback", BAD, "--max-unavailable", "3").ends(0)
    assert "Rollback of 8 nodes" in planned.stdout
    assert f"{BAD} → {BEFORE}" in planned.stdout
    assert f"rollout rollback {BAD} --max-unavailable 3" in planned.stdout
    assert not rebooted(lab)
    assert not any(choices(lab).values())

    killed_at(lab, tmp_path, "rebooting", *ROLLBACK)
    killed_at(lab, tmp_path, "draining", "resume", "--yes", *unlock(lab))
    refused = rollout(lab, "resume", "--yes", *unlock(lab), *FINALIZES).ends(ExitCode.USAGE)
    assert "a rollback stages none" in refused.stderr
    ended = rollout(lab, "resume", "--yes", "-o", "json", *unlock(lab)).ends(0)
    assert set(ended.outcomes.values()) == {"succeeded"}
    assert versions(lab) == {BEFORE}
    assert set(lab.scoreboard().reboots.values()) == {1}
    # The commands that toggle have run once on their hosts, whatever was killed.
    assert choices(lab)["worker-4"] == ["bootc rollback"]
    assert choices(lab)["worker-5"] == ["rpm-ostree rollback"]
    assert {len(lines) for lines in choices(lab).values()} == {1}
    assert json.loads(annotations(lab, "worker-1")["node-rollout.dev/last-result"])["version"] == (
        BEFORE
    )
    assert_clean(lab)

    stage(lab, "worker-1", BAD)
    apply = ("apply", *QUICK, "--node", "worker-1")
    held = rollout(lab, *apply).ends(ExitCode.PARTIAL)
    (left,) = held.plan["excluded"]
    assert (left["reason"], left["version"]) == ("version-held", BAD)
    assert "has been held by" in left["message"]
    rollout(lab, "release", BAD).ends(0)
    rollout(lab, *apply).ends(0)
    assert lab.machines["worker-1"].os_version == BAD
    nothing = rollout(lab, "rollback", BEFORE, "--yes", "--node", "worker-1").ends(0)
    assert f"Nothing to do: none of 1 node runs {BEFORE}." in nothing.stdout


def test_nodes_without_an_earlier_version_are_left_out_with_the_reason(
    started: Started, rollout: Rollout
) -> None:
    lab = started(
        msgspec.structs.replace(
            load_scenario("bad-update"),
            hosts=(
                *load_scenario("bad-update").hosts,
                HostOverride(
                    select=HostSelection(names=("worker-1",)),
                    faults=HostFaults(sudo=SudoFault.PASSWORD),
                ),
                HostOverride(select=HostSelection(names=("worker-2",)), version="4081.2.1"),
            ),
        ),
        12,
    )
    plan = json.loads(rollout(lab, "plan", "--rollback", BAD, "-o", "json").ends(0).stdout)
    # Nobody is told to take the newer version again.
    assert "more-updates" not in {warning["kind"] for warning in plan["warnings"]}
    left = {entry["node"]: (entry["reason"], entry["message"]) for entry in plan["excluded"]}
    none = "no-previous-version"
    assert left == {
        "worker-1": (
            "unknown-status",
            (
                "cannot find its other USR partition: sudo: a password is required (check why on"
                " the host; if core cannot run commands as root, add to /etc/sudoers.d: core"
                " ALL=(root) NOPASSWD: ALL)"
            ),
        ),
        "worker-2": ("no-update", f"it runs 4081.2.1, not {BAD}"),
        "worker-6": (none, "/dev/vda4 has never booted successfully"),
        "worker-7": (none, f"its other OS image is 4152.2.1, which is newer than {BAD}"),
        "worker-8": (none, f"its other OS image is {BAD}, too"),
        "worker-9": (
            none,
            "/dev/vda4 is being updated, or holds an update that has not booted yet",
        ),
    }
    assert plan["policy"]["rollback"] == BAD
    nodes = [node for wave in plan["waves"] for node in wave["nodes"]]
    assert {(node["running_version"], node["staged_version"]) for node in nodes} == {(BAD, BEFORE)}
    assert {tuple(node["detected_by"]) for node in nodes} == {("rollback",)}
    only = ("--node", "worker-6", "--node", "worker-2")
    ended = rollout(lab, "rollback", BAD, "--yes", *only).ends(ExitCode.PARTIAL)
    assert "/dev/vda4 has never booted successfully" in ended.stdout
    assert not rebooted(lab)


def test_doctor_warns_of_hosts_that_sudo_keeps_from_a_rollback(
    started: Started, rollout: Rollout
) -> None:
    lab = started(updated(with_deployments=False), 4)
    inflict(lab, HostFaults(sudo=SudoFault.ONLY_REBOOTS), "worker-1")
    doctor = json.loads(rollout(lab, "doctor", "-o", "json").ends(0).stdout)
    found = [check for check in doctor["checks"] if check["check"] == "rollback"]
    assert {check["subject"]: check["verdict"] for check in found} == {
        **dict.fromkeys(("cp-1", "worker-2", "worker-3"), "pass"),
        "worker-1": "warn",
    }
    (warning,) = (check for check in found if check["verdict"] == "warn")
    assert "core cannot run `sudo -n cgpt find`" in warning["message"]
    assert "core ALL=(root) NOPASSWD: ALL" in warning["fix"]
    assert not any(machine.run_as_root for machine in lab.machines.values())
    plan = json.loads(rollout(lab, "plan", "--rollback", BAD, "-o", "json").ends(0).stdout)
    assert [left["node"] for left in plan["excluded"]] == ["worker-1"]


def test_a_saved_plan_goes_back_unless_the_other_partition_has_changed(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started(updated(with_deployments=False), 4)
    file = tmp_path / "back.plan"
    rollout(lab, "plan", "--rollback", BAD, "--out", str(file), "--max-unavailable", "3").ends(0)
    shown = rollout(lab, "plan", str(file)).ends(0).stdout
    assert f"{BAD} → {BEFORE}" in shown
    replace_previous(lab, "worker-1")
    stale = rollout(lab, "apply", str(file)).ends(ExitCode.STALE)
    assert "4081.2.0 was staged, but 4081.1.0 is staged now" in stale.stderr
    lab.call(partial(setattr, lab.machines["worker-1"], "previous_version", BEFORE))
    refused = rollout(lab, "apply", str(file), *FINALIZES).ends(ExitCode.USAGE)
    assert "a rollback stages none" in refused.stderr
    applied = rollout(lab, "apply", str(file)).ends(0)
    assert (
        f"--rollback {BAD}: its nodes are rolled back to their previous version" in applied.stdout
    )
    assert versions(lab) == {BEFORE}
    assert f"Version {BAD} has been held by" in rollout(lab, "status").stdout


def test_an_abort_has_the_host_boot_what_it_runs(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    node = "worker-5"
    lab = started(updated(), 8)
    inflict(lab, HostFaults(reboot=RebootFault.IGNORED), node)
    killed_at(lab, tmp_path, "rebooting", *ROLLBACK, "--node", node)
    # As if the command had arrived, and the host had not rebooted.
    lab.call(partial(setattr, lab.machines[node], "boots_other", True))
    rollout(lab, "abort", "--yes", "--wait", "1s", *unlock(lab)).ends(0)
    assert not lab.machines[node].boots_other
    assert not is_cordoned(lab, node)
    assert marks_of(lab, node).keys() == {"last-result"}
    assert record(lab) is None
    inflict(lab, HEALTHY, node)
    lab.call(lab.machines[node].reboot)
    assert lab.machines[node].os_version == BAD


def test_a_retry_that_is_aborted_before_its_reboot_leaves_nothing_chosen(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    node = "worker-1"
    lab = started(updated(with_deployments=False), 4)
    ignored = HostFaults(reboot=RebootFault.IGNORED)
    inflict(lab, ignored, node)
    killed_at(lab, tmp_path, "rebooting", *ROLLBACK, "--node", node)
    # As if the command had arrived, and the host had then lost its network instead of rebooting.
    lab.call(partial(setattr, lab.machines[node], "boots_other", True))
    inflict(lab, msgspec.structs.replace(ignored, ssh=SshFault.CLOSED), node)
    resume = ("resume", "--yes", "-o", "json", "--reboot-timeout", "2s")
    failed = rollout(lab, *resume, *unlock(lab)).ends(ExitCode.PARTIAL)
    assert failed.outcomes == {node: "not-back"}
    assert lab.machines[node].boots_other
    inflict(lab, ignored, node)
    killed_at(lab, tmp_path, "draining", *resume, "--retry-failed", *unlock(lab))
    rollout(lab, "abort", "--yes", *unlock(lab)).ends(0)
    assert not lab.machines[node].boots_other
    assert not is_cordoned(lab, node)


def test_an_abort_that_cannot_undo_says_so(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started(updated(), 8)
    inflict(lab, HostFaults(reboot=RebootFault.IGNORED), "worker-1")
    killed_at(lab, tmp_path, "rebooting", *ROLLBACK, "--node", "worker-1")
    faults = HostFaults(reboot=RebootFault.IGNORED, sudo=SudoFault.PASSWORD)
    inflict(lab, faults, "worker-1")
    aborted = rollout(lab, "abort", "--yes", "--wait", "1s", *unlock(lab)).ends(ExitCode.PARTIAL)
    assert "its next reboot may boot its other version" in aborted.stdout
    assert "sudo: a password is required" in aborted.stdout
    assert is_cordoned(lab, "worker-1")


def test_a_host_that_does_not_go_back_fails_and_boots_what_it_runs(
    started: Started, rollout: Rollout
) -> None:
    faults = {
        "worker-1": HostFaults(reboot=RebootFault.ROLLS_BACK),
        "worker-2": HostFaults(reboot=RebootFault.IGNORED),
        "worker-3": HostFaults(reboot=RebootFault.NEVER_RETURNS),
        "worker-5": HostFaults(reboot=RebootFault.ROLLS_BACK),
    }
    lab = started(updated(), 8)
    for name, fault in faults.items():
        inflict(lab, fault, name)
    only = [word for name in faults for word in ("--node", name)]
    flags = ("--reboot-timeout", "3s", "--max-failures", "9")
    ended = rollout(lab, *ROLLBACK, *only, *flags).ends(ExitCode.PARTIAL)
    assert ended.outcomes == {
        "worker-1": "rolled-back",
        "worker-2": "not-rebooted",
        "worker-3": "not-back",
        "worker-5": "rolled-back",
    }
    assert ended.failures["worker-1"]["message"] == (
        f"the host rebooted, and is still running {BAD} instead of {BEFORE}: the rollback did not take"
        " effect"
    )
    chosen = [name for name, machine in lab.machines.items() if machine.boots_other]
    assert chosen == ["worker-3"]
    assert [name for name in lab.machines if is_cordoned(lab, name)] == ["worker-3"]
    assert "its next reboot may boot its other version" not in ended.stdout


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (stage, "/dev/vda4 is being updated, or holds an update that has not booted yet"),
        (replace_previous, f"it would go back to 4081.1.0, not to {BEFORE} as planned"),
    ],
)
def test_what_comes_on_the_other_partition_in_between_is_not_booted(
    change: Callable[[Lab, str], None], why: str, started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started(updated(with_deployments=False), 4)
    killed_at(lab, tmp_path, "draining", *ROLLBACK, "--node", "worker-1")
    change(lab, "worker-1")
    ended = rollout(lab, "resume", "--yes", "-o", "json", *unlock(lab)).ends(ExitCode.PARTIAL)
    (left,) = [line for line in ended.lines if line["type"] == "node_finished"]
    assert (left["outcome"], left["message"]) == ("skipped", f"not rebooted: {why}")
    assert not rebooted(lab)
    assert not any(choices(lab)["worker-1"])
    assert not is_cordoned(lab, "worker-1")


def test_a_host_whose_other_partition_may_be_written_by_now_is_not_rolled_back(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started(updated(with_deployments=False), 4)
    killed_at(lab, tmp_path, "draining", *ROLLBACK, "--node", "worker-1")
    inflict(lab, HostFaults(bus=BusFault.ABSENT), "worker-1")
    resume = ("resume", "--yes", "-o", "json", "--reboot-timeout", "3s", *unlock(lab))
    ended = rollout(lab, *resume).ends(ExitCode.PARTIAL)
    assert ended.outcomes == {"worker-1": "reboot-refused"}
    why = "cannot tell whether /dev/vda4 is being updated: update_engine did not respond in time"
    assert why in ended.failures["worker-1"]["message"]
    assert not rebooted(lab)
    assert not lab.machines["worker-1"].boots_other
    assert not is_cordoned(lab, "worker-1")


def test_a_resume_without_a_readable_memory_returns_what_has_not_rebooted(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started(updated(with_deployments=False), 4)
    begun = killed_at(lab, tmp_path, "draining", *ROLLBACK, "--max-unavailable", "1")
    garble_memory(lab)
    resume = ("resume", "--yes", "-o", "json", *unlock(lab))
    ended = rollout(lab, *resume).ends(ExitCode.PARTIAL)
    memory = "ConfigMap kube-system/node-rollout-memory is invalid"
    assert memory in ended.summary["reasons"][begun]
    assert f"warning: {BAD} cannot be held: {memory}" in ended.stdout + ended.stderr
    assert not rebooted(lab)
    assert not is_cordoned(lab, begun)


def test_the_metrics_of_a_rollback_do_not_say_that_a_staged_update_is_none(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started(updated(with_deployments=False), 4)
    stage(lab, "worker-2")
    file = tmp_path / "rollout.prom"
    rollout(lab, *ROLLBACK, "--set", f"metrics.textfile={file}").ends(ExitCode.PARTIAL)
    scrape = Scrape(file.read_text(encoding="utf-8"))
    (required,) = (
        family for name, family in scrape.families.items() if name == "node_rollout_reboot_required"
    )
    assert {sample.labels["node"] for sample in required.samples} == rebooted(lab)
    assert "worker-2" not in rebooted(lab)
    assert not scrape.families["node_rollout_hosts_behind"].samples
    assert scrape.values("node_rollout_version_held", "version") == {BAD: 1}


def test_a_version_is_held_by_hand(started: Started, rollout: Rollout) -> None:
    lab = started("default", 4)
    held = rollout(lab, "hold", BAD).ends(0)
    assert held.stdout.startswith(f"Held: {BAD}.")
    rollout(lab, "hold", "not a version").ends(ExitCode.USAGE)
    plan = json.loads(rollout(lab, "plan", "-o", "json").ends(0).stdout)
    assert {left["reason"] for left in plan["excluded"]} == {"version-held"}
    assert "To end the hold: rollout release" in rollout(lab, "status").stdout
    # A success with --allow held does not end what a person holds.
    rollout(lab, "apply", *QUICK, "--allow", "held", "--node", "worker-1").ends(0)
    again = rollout(lab, "plan", "-o", "json", "--node", "cp-1").ends(0)
    assert [left["reason"] for left in json.loads(again.stdout)["excluded"]] == ["version-held"]
    rollout(lab, "release", BAD).ends(0)
    assert json.loads(rollout(lab, "plan", "-o", "json").ends(0).stdout)["waves"]
