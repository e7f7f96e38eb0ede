"""One pass of `rollout operate --once`: the real program, judged by what the cluster saw."""

import json
import shlex
from functools import partial
from pathlib import Path

import pytest

from rollout.lab.api.resources import CONFIGMAPS, LEASES
from rollout.lab.hosts.faults import HostFaults, SshFault
from tests.apply.conftest import Rollout, Started, command, killed_at
from tests.operate.conftest import ONCE, ORIGIN, assert_all_done, assert_untouched, open_now
from tests.state import rebooted, record, write
from tests.waiting import Inbox, wait_until

APPLY = ("apply", "--yes", "-o", "json", "--max-unavailable", "2", "--set", "waves.health-checks=1")


def test_a_pass_does_what_waits_and_the_next_one_nothing(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 4)
    first = rollout(lab, *ONCE).ends(0)
    assert len(first.summary["succeeded"]) == 4
    assert_all_done(lab)
    second = rollout(lab, "operate", "--once").ends(0)
    assert second.stdout == "Nothing to do: no node is waiting for a reboot.\n"


def test_nodes_without_a_linux_host_end_no_pass_with_a_failure(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 4)
    others = {"worker-1": {"kubernetes.io/os": "windows"}, "worker-2": {"type": "virtual-kubelet"}}
    for node, labels in others.items():
        write(lab, node, "labels", **labels)
        closed = partial(lab.machines[node].inflict, HostFaults(ssh=SshFault.CLOSED))
        lab.call(closed)
    first = rollout(lab, *ONCE).ends(0)
    assert set(first.summary["succeeded"]) == {"cp-1", "worker-3"}
    assert first.summary["left_out"] == {"unsupported": 2}
    checks = json.loads(rollout(lab, "doctor", "-o", "json").stdout)["checks"]
    of_others = [
        (check["check"], check["verdict"]) for check in checks if check["subject"] in others
    ]
    assert of_others == [("node", "pass")] * 2


def test_outside_its_window_a_pass_ends_well_where_apply_fails(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 4)
    window = ("--window", open_now(hours=6))
    rollout(lab, *APPLY, *window).ends(4)
    # without the window it would start at once
    again = shlex.join(("rollout", "apply", *window))
    assert f"Next:\n    {again}\n" in rollout(lab, "apply", "--yes", *window).stdout
    assert record(lab) is None, "what has begun nothing leaves nothing"
    ended = rollout(lab, "operate", "--once", *window).ends(0)
    assert ended.stdout.startswith(
        "No node can be rebooted now: outside the maintenance window; the next window opens "
    )
    assert ended.stdout.count("\n") == 1
    as_json = rollout(lab, *ONCE, *window)
    assert [line["type"] for line in as_json.lines] == ["version", "notice", "summary"]
    assert_untouched(lab)


def test_what_a_person_was_killed_in_is_left_to_persons_who_are_told_once_after_a_day(
    inbox: Inbox, started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)
    node = killed_at(lab, tmp_path, "draining", *APPLY, "--set", "lock.duration=1s")
    told = ("operate", "--once", "--set", f"notify.url={inbox.url}")
    ended = rollout(lab, *told).ends(0)
    why = "someone started it with apply, so operate does not continue it: `rollout resume` continues it"
    assert why in ended.stdout
    assert node in lab.scoreboard().annotations_left
    assert ORIGIN not in (record(lab) or {})["metadata"]["annotations"]
    lab.call(lambda: lab.machines["worker-1"].clock.skip(25 * 3600))
    for _ in range(2):
        rollout(lab, *told).ends(0)
    note = inbox.one("finished")
    assert "operate has started no rollout for a day: " in note["body"]
    assert "`rollout resume` continues it" in note["body"]


def test_nodes_in_flight_without_a_record_block_a_pass_until_an_abort(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)
    killed_at(lab, tmp_path, "draining", *ONCE, "--set", "lock.duration=1s")
    lab.call(lambda: lab.store.remove(CONFIGMAPS, "node-rollout", "kube-system"))
    blocked = rollout(lab, "operate", "--once").ends(6)
    assert "its record is gone, or is in another lock.namespace" in blocked.stderr
    assert "`rollout abort` returns the nodes in flight to service" in blocked.stderr
    assert "apply" not in blocked.stderr


def test_nodes_that_a_dead_fleetlock_server_has_begun_are_not_called_a_persons(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)
    node = killed_at(lab, tmp_path, "draining", *ONCE, "--set", "lock.duration=1s")
    lab.call(lambda: lab.store.remove(CONFIGMAPS, "node-rollout", "kube-system"))
    write(lab, node, "annotations", **{"node-rollout.dev/run": "fleetlock-1"})
    waiting = rollout(lab, "operate", "--once").ends(0).stdout
    assert "the FleetLock server is draining and rebooting hosts" in waiting
    assert "operate takes on no nodes until these are returned to service" in waiting
    assert "apply" not in waiting


def test_what_a_person_aborted_is_left_to_persons_until_one_acts(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)
    killed_at(lab, tmp_path, "draining", *ONCE, "--set", "lock.duration=1s")
    aborted = rollout(lab, "abort", "--yes").ends(0)
    assert "rollout unpause --unattended" in aborted.stdout
    for _ in range(2):
        ended = rollout(lab, "operate", "--once").ends(0)
        assert ended.stdout.startswith("No node can be rebooted now: rollout "), ended.stdout
        assert "was aborted by" in ended.stdout
        assert "rollout unpause --unattended" in ended.stdout
    assert "Unattended passes will not reboot any nodes" in rollout(lab, "status").stdout
    assert_untouched(lab, evictions=True)
    rollout(lab, *APPLY, "--node", "worker-1").ends(0)
    ended = rollout(lab, *ONCE).ends(0)
    assert_all_done(lab)


def test_each_kind_of_stop_ends_alone(started: Started, rollout: Rollout, tmp_path: Path) -> None:
    lab = started("default", 4)
    killed_at(lab, tmp_path, "draining", *ONCE, "--set", "lock.duration=1s")
    rollout(lab, "abort", "--yes").ends(0)
    rollout(lab, "pause", "worker-2", "--reason", "its disk is broken").ends(0)
    rollout(lab, "pause", "--all").ends(0)
    of_all = rollout(lab, "unpause", "--all").ends(0).stdout
    assert "The pause of all nodes has ended." in of_all
    assert "rollout unpause worker-2" in of_all
    assert "rollout unpause --unattended" in of_all
    assert "was aborted by" in rollout(lab, *ONCE).ends(0).stdout
    ended = rollout(lab, "unpause", "--unattended", "-o", "json").ends(0)
    assert json.loads(ended.stdout) == {"all": False, "nodes": [], "unattended": True}
    rollout(lab, *ONCE).ends(0)
    assert {name for name, times in lab.scoreboard().reboots.items() if not times} == {"worker-2"}
    assert "Nothing to unpause" in rollout(lab, "unpause", "--unattended").ends(0).stdout


def test_beside_somebody_elses_rollout_it_says_so(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("drain-hangs", 4)
    other = command(lab, tmp_path, *APPLY, "--set", "lock.duration=3s")
    wait_until(lambda: bool(lab.scoreboard().cordons_left))
    ended = rollout(lab, "operate", "--once").ends(0)
    assert ended.stdout.startswith("No node can be rebooted now: a rollout is running on ")
    assert "To watch it:     rollout status --watch" in ended.stdout
    other.kill()
    other.communicate()


@pytest.mark.sample
@pytest.mark.parametrize("phase", ["cordoned", "drained", "rebooting", "ready"])
def test_what_a_killed_pass_left_the_next_one_goes_on_with(
    started: Started, rollout: Rollout, tmp_path: Path, phase: str
) -> None:
    lab = started("default", 4)
    killed_at(lab, tmp_path, phase, *ONCE, "--set", "lock.duration=1s")
    left = record(lab)
    assert left is not None
    assert left["metadata"]["annotations"][ORIGIN] == "operate"
    rollout(lab, *ONCE).ends(0)
    assert_all_done(lab)


def test_it_goes_on_under_todays_rules_where_they_are_stricter(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 6)
    killed_at(lab, tmp_path, "draining", *ONCE, "--set", "lock.duration=1s")
    strict = ("--control-plane", "exclude", "--max-unavailable", "1", "--exclude", "worker-1")
    begun = set(lab.scoreboard().annotations_left)
    ended = rollout(lab, *ONCE, *strict).ends(0)
    plan = ended.plan
    assert plan["policy"]["max_unavailable"] == 1
    assert plan["policy"]["control_plane"] == "exclude"
    done = rebooted(lab)
    assert begun <= done
    assert "cp-1" not in done
    assert "worker-1" not in done - begun
    assert record(lab) is None


def test_begun_nodes_are_finished_outside_the_window_and_no_others(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 5)
    node = killed_at(
        lab, tmp_path, "drained", *ONCE, "--max-unavailable", "1", "--set", "lock.duration=1s"
    )
    rollout(lab, *ONCE, "--window", open_now(hours=6)).ends(0)
    score = lab.scoreboard()
    assert rebooted(lab) == {node}
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert score.taints_left == ()


def test_sigterm_finishes_what_is_in_flight_and_the_next_pass_the_rest(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 5)
    process = command(lab, tmp_path, *ONCE, "--max-unavailable", "1")
    wait_until(lambda: bool(lab.scoreboard().cordons_left))
    process.terminate()
    _stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    score = lab.scoreboard()
    assert sum(score.reboots.values()) == 1
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert score.taints_left == ()
    rollout(lab, *ONCE).ends(0)
    assert_all_done(lab)


def test_nothing_is_begun_that_cannot_end_before_the_deadline(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 4)
    ended = rollout(lab, *ONCE, "--active-deadline", "10s").ends(0)
    reasons = ended.summary["reasons"].values()
    assert all(
        "left until --active-deadline, and it is estimated to take" in why for why in reasons
    )
    assert len(reasons) == 4
    assert_untouched(lab)
    rollout(lab, *ONCE, "--active-deadline", "2h", "--node", "worker-1").ends(0)
    assert rebooted(lab) == {"worker-1"}


def test_a_holder_that_died_is_outlived(started: Started, rollout: Rollout) -> None:
    lab = started("default", 4)
    spec = {"holderIdentity": "dead@elsewhere/1", "leaseDurationSeconds": 2}
    lease = {"metadata": {"name": "node-rollout", "namespace": "kube-system"}, "spec": spec}
    lab.call(lambda: lab.store.create(LEASES, lease))
    ended = rollout(lab, *ONCE, "--node", "worker-1").ends(0)
    assert "waiting up to 3s to see if dead@elsewhere/1 renews the lock" in ended.stderr
    assert rebooted(lab) == {"worker-1"}


def test_what_a_person_was_killed_in_before_anything_began_keeps_no_pass(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)
    gate = ("--set", "gates.blocking-pod-selector=app", "--set", "lock.duration=1s")
    killed = command(lab, tmp_path, *APPLY, *gate)
    wait_until(lambda: record(lab) is not None)
    killed.kill()
    killed.communicate()
    assert_untouched(lab)
    # its last renewal of the lock may come to the server after its end
    one = ("--node", "worker-1")
    wait_until(lambda: "is running" not in rollout(lab, *ONCE, *one).stdout)
    assert rebooted(lab) == {"worker-1"}


def test_nodes_with_blockers_are_left_out_unless_the_configuration_says_otherwise(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("budget-never", 4)
    ended = rollout(lab, *ONCE).ends(0)
    assert ended.summary["left_out"]["blocked"] >= 1
    settings = tmp_path / "strict.toml"
    settings.write_text("[nodes]\nskip = []\n")
    refused = rollout(lab, "operate", "--once", "--config", str(settings)).ends(6)
    assert "2 nodes have blockers" in refused.stderr


def test_a_pass_that_can_take_no_node_does_not_say_that_none_waits(
    started: Started, rollout: Rollout
) -> None:
    lab = started("rollback", 4)
    first = rollout(lab, *ONCE)
    assert [line["type"] for line in first.lines].count("version_held") == 1
    second = rollout(lab, "operate", "--once").ends(4)
    assert "Nothing to do" not in second.stdout
    assert "version-held" in second.stdout


def test_a_pass_that_stopped_after_a_failure_keeps_no_apply_out(
    started: Started, rollout: Rollout
) -> None:
    """Its nodes are planned anew by whoever comes first."""
    lab = started("drain-hangs", 5)
    failed = rollout(lab, "operate", "--once", "-o", "json", "--drain-timeout", "3s").ends(4)
    assert failed.summary["not_started"]
    rollout(lab, "apply", "--yes", "--node", "cp-1").ends(0)
