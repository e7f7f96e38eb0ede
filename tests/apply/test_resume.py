"""Going on with what another machine has left, and undoing it: the real program, judged by what the
cluster saw.
"""

import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.resources import EVENTS, LEASES
from rollout.lab.hosts.faults import HostFaults
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, Started, command, is_ending, killed_at
from tests.ended import answered, invoked
from tests.state import holder_of, lease_of, marks_of, record, run_of, unlock
from tests.waiting import wait_until

APPLY = (
    *("apply", "--yes", "-o", "json", "--max-unavailable", "2", "--control-plane", "exclude"),
    *("--set", "waves.health-checks=1"),
)


def stopped_at(lab: Lab, home: Path, phase: str, *flags: str) -> str:
    """Kill an apply as soon as it tells of a node in this phase; that node."""
    return killed_at(lab, home, phase, *APPLY, *flags)


def assert_finished(lab: Lab) -> None:
    score = lab.scoreboard()
    workers = {name: count for name, count in score.reboots.items() if name.startswith("worker")}
    assert set(workers.values()) == {1}
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert score.killed == ()
    assert score.budgets_broken == ()
    assert score.most_unavailable <= 2
    assert record(lab) is None


def test_nothing_to_do_is_no_failure(started: Started, rollout: Rollout) -> None:
    lab = started("default", 4)
    resumed = rollout(lab, "resume")
    aborted = rollout(lab, "abort")
    assert resumed.code == 0
    assert aborted.code == 0
    assert "Nothing to resume" in resumed.stdout
    told = rollout(lab, "resume", "--yes", "-o", "json")
    assert told.code == 0
    assert [line["type"] for line in told.lines] == ["version", "summary"]
    assert told.summary["succeeded"] == told.summary["failed"] == told.summary["not_started"] == []
    assert "Nothing to undo" in aborted.stdout


def test_another_machine_sees_it_refuses_beside_it_and_finishes_it(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 6)
    node = stopped_at(lab, tmp_path, "draining")
    refused = rollout(lab, "apply", "--yes").ends(6)
    assert "rollout resume" in refused.stderr
    assert "rollout abort" in refused.stderr
    rollout(lab, "resume").ends(3)
    assert marks_of(lab, node)["run"] == run_of(lab)
    ended = rollout(lab, "resume", "--yes", *unlock(lab)).ends(0)
    assert f"{node}: " in ended.stdout
    assert_finished(lab)
    assert json.loads(marks_of(lab, node)["last-result"])["took"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_waits_for_the_lock_of_another_leaves_at_the_first_signal(
    started: Started, tmp_path: Path, number: signal.Signals
) -> None:
    """That lock would have to go unrenewed for an hour."""
    lab = started("default", 4)
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600}
    lease = {"metadata": {"name": "node-rollout", "namespace": "kube-system"}, "spec": spec}
    lab.call(lambda: lab.store.create(LEASES, lease))
    process = command(lab, tmp_path, *APPLY)
    assert process.stderr is not None
    next(
        line
        for line in process.stderr
        if "waiting up to 20m2s to see if somebody renews the lock" in line
    )
    process.send_signal(number)
    stderr = process.communicate(timeout=60)[1]
    assert process.returncode == (130 if number is signal.SIGINT else -number), stderr
    score = lab.scoreboard()
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert score.evictions == 0
    assert record(lab) is None
    standing = lease_of(lab)
    assert standing["spec"] == spec


def test_abort_gives_back_what_was_begun_and_nothing_else(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    """It also says so in an Event of the Node, for people who do not know rollout.

    Nobody waits for the lock of a process that has ended on this machine.
    """
    lab = started("default", 6)
    node = stopped_at(lab, tmp_path, "draining")
    run = run_of(lab)
    refused = rollout(lab, *APPLY).ends(6)
    assert "rollout resume" in refused.stderr
    ended = rollout(lab, "abort", "--yes", "--wait", "1s", "-o", "json").ends(0)
    assert "holds the lock" not in refused.stderr + ended.stderr
    assert node in json.loads(ended.stdout)["reverted"]
    assert holder_of(lab) == ""
    score = lab.scoreboard()
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert record(lab) is None
    assert json.loads(marks_of(lab, node)["last-result"])["outcome"] == "aborted"
    events = [event for event in lab.store.items(EVENTS) if event["involvedObject"]["name"] == node]
    (event,) = (event for event in events if event["reason"] == "GivenBack")
    assert event["type"] == "Normal"
    assert event["source"]["component"] == "node-rollout"
    assert event["message"].startswith("Uncordoned without a reboot, in phase ")
    assert event["message"].endswith(f"; it is uncordoned (rollout {run})")
    assert "RolloutFailed" not in {event["reason"] for event in events}
    rollout(lab, "apply", "--yes", "--dry-run").ends(0)


def recorded_run(lab: Lab) -> str:
    stored = record(lab)
    assert stored is not None
    return str(stored["metadata"]["annotations"]["node-rollout.dev/run"])


def stopped_run(lab: Lab, home: Path) -> str:
    """Stop an apply after its first reboot: nothing of it is in flight, and nodes of it were not
    started.
    """
    process = command(lab, home, *APPLY)
    wait_until(lambda: any(lab.scoreboard().reboots.values()))
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    return recorded_run(lab)


def test_a_stopped_rollout_is_replaced_only_after_a_question(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 6)
    run = stopped_run(lab, tmp_path)
    another = ("apply", "--node", "cp-1")
    refused = rollout(lab, *another, "--yes").ends(6)
    assert f"rollout {run}" in refused.stderr
    assert (
        "`rollout resume` continues it; `rollout abort` ends it and returns the unfinished"
        " nodes to service" in refused.stderr
    )
    discards = "Answering yes discards it. To continue it instead: rollout resume\n"
    assert discards in rollout(lab, *another, "--dry-run").ends(0).stderr
    planned = rollout(lab, "plan").stdout
    assert planned.splitlines()[-1] == "    rollout resume"
    declined = answered(tmp_path, lab.environment, another, "no").ends(3)
    assert f"rollout {run}" in declined.stderr.lower()
    assert discards in declined.stderr
    assert recorded_run(lab) == run
    answered(tmp_path, lab.environment, (*another, "--interactive"), "yes\nno").ends(3)
    assert recorded_run(lab) == run, "no wave was started"
    answered(tmp_path, lab.environment, another, "yes").ends(0)
    assert lab.scoreboard().reboots["cp-1"] == 1
    assert record(lab) is None


def recorded_rules(lab: Lab) -> dict[str, Any]:
    """The rules in the record of the rollout."""
    stored = record(lab)
    assert stored is not None
    policy: dict[str, Any] = json.loads(stored["data"]["plan.json"])["policy"]
    return policy


def test_a_dead_host_is_tried_again_on_request_with_new_time_outs_and_no_other_new_rule(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("never-returns", 5)
    dead = "worker-2"
    rollout(lab, *APPLY, "--node", dead, "--reboot-timeout", "1s").ends(4)
    rollout(lab, "resume", "--yes").ends(0)
    assert marks_of(lab, dead)["phase"] == "failed"

    again = ("resume", "--yes", "--retry-failed")
    refused = rollout(lab, *again, "--set", "waves.canary=1").ends(64)
    assert (
        "--canary cannot be changed now: the interrupted rollout has its own settings"
        in refused.stderr
    )
    longer = rollout(lab, *again, "--reboot-timeout", "2s").ends(4)
    assert "note: --reboot-timeout is 2s from now on; it was 1s" in longer.stderr
    assert recorded_rules(lab)["reboot_timeout"] == "2s"

    assert_time_outs_come_from_wherever_they_are_set(lab, tmp_path, again)

    lab.call(lambda: lab.machines[dead].inflict(HostFaults()))
    lab.call(lab.machines[dead].power_on)
    rollout(lab, *again, "--reboot-timeout", "30m").ends(0)
    score = lab.scoreboard()
    assert score.reboots[dead] == 1
    assert score.cordons_left == ()
    assert record(lab) is None


def assert_time_outs_come_from_wherever_they_are_set(
    lab: Lab, home: Path, again: tuple[str, ...]
) -> None:
    """A timeout that is not set stays as in the last resume. One without effect is reported."""
    file = home / "rollout.toml"
    file.write_text(
        '[drain]\ntimeout = "7m"\n[waves]\nsettle-timeout = "3m"\nspread-by = "zone"\n',
        encoding="utf-8",
    )
    variables = {
        "ROLLOUT_READY_TIMEOUT": "8s",
        "ROLLOUT_MAX_UNAVAILABLE": "3",
        "ROLLOUT_DRAIN_TIMEOUT": "6m",
    }
    flags = ("--config", str(file), "--set", "gates.hook-timeout=9m")
    ended = invoked(home, {**lab.environment, **variables}, (*again, *flags)).ends(4)
    rules = recorded_rules(lab)
    assert rules["drain"]["timeout"] == "6m"
    assert rules["settle_timeout"] == "3m"
    assert rules["ready_timeout"] == "8s"
    assert rules["gates"]["hooks"]["timeout"] == "9m"
    assert rules["reboot_timeout"] == "2s"
    assert "note: --reboot-timeout" not in ended.stderr
    assert (
        "note: the variable ROLLOUT_MAX_UNAVAILABLE has no effect: --max-unavailable stays"
        in ended.stderr
    )
    assert f"note: {file}:5: waves.spread-by has no effect: --spread-by stays" in ended.stderr
    assert rules["max_unavailable"] == 2
    assert rules["spread_by"] == ""


@pytest.mark.sample
@pytest.mark.parametrize("signals", [(signal.SIGHUP, signal.SIGHUP), (signal.SIGTERM,)])
def test_a_first_signal_can_give_back_what_is_not_rebooting(
    started: Started, tmp_path: Path, signals: tuple[signal.Signals, ...]
) -> None:
    """A terminal that goes away is told of more than once, which makes no second signal of it."""
    lab = started("drain-hangs", 6)
    process = command(lab, tmp_path, *APPLY, "--set", "waves.stop=revert")
    wait_until(lambda: lab.call(lambda: is_ending(lab, "stubborn")))
    for number in signals:
        process.send_signal(number)
        time.sleep(0.1)
    _stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Stopping: uncordoning the nodes in flight" in stderr
    score = lab.scoreboard()
    assert score.cordons_left == ()
    assert score.annotations_left == {}


def test_a_run_outlives_its_terminal(started: Started, tmp_path: Path) -> None:
    """What is in flight is finished, though nobody can be told any more."""
    lab = started("default", 6)
    process = command(lab, tmp_path, *APPLY, "--max-unavailable", "1")
    wait_until(lambda: bool(lab.scoreboard().cordons_left))
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stderr.close()
    process.send_signal(signal.SIGHUP)
    process.wait(60)
    score = lab.scoreboard()
    assert sorted(score.reboots.values())[-2:] == [0, 1]
    assert score.cordons_left == ()
    assert score.annotations_left == {}


def test_a_second_signal_ends_it_at_once_and_says_how_to_go_on(
    started: Started, tmp_path: Path
) -> None:
    lab = started("drain-hangs", 6)
    process = command(lab, tmp_path, *APPLY)
    wait_until(lambda: lab.call(lambda: is_ending(lab, "stubborn")))
    process.terminate()
    assert process.stderr is not None
    while "Stopping" not in (line := process.stderr.readline()):
        assert line, process.communicate()
    process.terminate()
    _stdout, stderr = process.communicate(timeout=40)
    assert process.returncode == 130
    assert "rollout resume" in stderr
    assert lab.scoreboard().annotations_left
    assert holder_of(lab) == ""


def test_an_abort_ends_at_the_first_signal_and_at_once_at_the_second(
    started: Started, tmp_path: Path
) -> None:
    """What is left is there for another; nobody waits for a lock that its holder could have let go."""
    lab = started("never-returns", 5)
    node = stopped_at(lab, tmp_path, "rebooting", "--node", "worker-2")
    run = run_of(lab)
    for signals in (1, 2):
        process = command(lab, tmp_path, "abort", "--yes", "--wait", "10m", "--force-unlock", run)
        assert process.stderr is not None
        next(
            line
            for line in process.stderr
            if "its reboot may have been requested: watching it" in line
        )
        process.send_signal(signal.SIGINT)
        if signals == 2:
            next(line for line in process.stderr if "no more nodes are returned to service" in line)
            process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
        assert process.returncode == 130, stderr
        assert holder_of(lab) == ""
        assert record(lab) is not None
        assert marks_of(lab, node)["phase"] == "rebooting"
        if signals == 1:
            assert (
                f"Left unchanged: {node}: stopped on request\nNext:\n    rollout abort\n" in stdout
            )
            assert "rollout operate" not in stdout


def test_status_ends_with_the_way_on(started: Started, rollout: Rollout, tmp_path: Path) -> None:
    """Of one that was killed at once; of one that has failed nodes left, what to do after fixing
    them.
    """
    lab = started("never-returns", 5)
    stopped_at(lab, tmp_path, "drained")
    assert rollout(lab, "status").stdout.endswith("\nNext:\n    rollout resume\n")
    rollout(lab, "abort", "--yes").ends(0)
    rollout(lab, *APPLY, "--node", "worker-2", "--reboot-timeout", "1s").ends(4)
    told = rollout(lab, "status").stdout
    row = next(line for line in told.splitlines() if line.startswith("worker-2"))
    assert re.search(r" failed \d+s ago \(not-back\); the connection was refused$", row)
    assert "ended unfinished: 1 node failed." in told
    assert "continues it" not in rollout(lab, "status", "--run").stdout
    assert told.endswith(
        "\nAfter fixing worker-2:\n    rollout release 4152.2.0\n    rollout resume"
        " --retry-failed\n"
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "way", [("abort", "--yes"), ("resume", "--yes"), ("resume",), APPLY, ("apply", "--yes")]
)
def test_beside_a_living_rollout_nothing_is_planned_asked_or_written_and_it_is_said_how_to_watch_and_stop_it(
    started: Started, tmp_path: Path, way: tuple[str, ...]
) -> None:
    lab = started("drain-hangs", 5)
    living = command(lab, tmp_path, *APPLY)
    try:
        wait_until(lambda: lab.call(lambda: is_ending(lab, "stubborn")), 90)
        holder = holder_of(lab)
        journal = next((tmp_path / ".local/state/rollout/runs").glob("*.jsonl"))
        begun = time.monotonic()
        ended = invoked(tmp_path, lab.environment, way)
        took = time.monotonic() - begun
        assert ended.code == 6, ended.stderr
        place, _, process = holder.rpartition("/")
        told = (
            rf"a rollout is running on {re.escape(place)} \(process {process}, renewed \d+s ago\)"
        )
        assert re.search(told, ended.stderr), ended.stderr
        assert "  To watch it:     rollout status --watch\n" in ended.stderr
        assert (
            "  To stop it:      rollout pause --all        (it finishes the nodes in flight)\n"
            in ended.stderr
        )
        unlocking = f"--force-unlock {run_of(lab)}"
        assert (
            f"To take it over now, run: rollout resume {unlocking} (or rollout abort {unlocking})"
            in ended.stderr
        )
        assert not [
            word
            for word in ("has not renewed", "watching", "Wave", "renewed the lock")
            if word in ended.stderr
        ]
        assert "Wave" not in ended.stdout
        assert took < 10
        records = [json.loads(line) for line in journal.read_text().splitlines()]
        assert [record["command"] for record in records if record["type"] == "run"] == ["apply"]
        assert [file.name for file in journal.parent.iterdir()] == [journal.name]
        assert living.poll() is None
        assert holder_of(lab) == holder
    finally:
        living.kill()
        living.communicate()


@pytest.mark.sample
@pytest.mark.parametrize("place", ["/dev/full", "/dev/null/journal"])
def test_a_journal_that_cannot_be_written_stops_nothing(
    started: Started, rollout: Rollout, place: str
) -> None:
    lab = started("default", 4)
    ended = rollout(lab, *APPLY, "--set", f"output.journal={place}").ends(0)
    assert len(re.findall("cannot write the journal|can no longer be written", ended.stderr)) == 1
    assert f"{place.removesuffix('/journal')}" in ended.stderr
    assert "Errno" not in ended.stderr


def test_of_two_at_once_one_works(started: Started, tmp_path: Path) -> None:
    lab = started("default", 5)
    both = [command(lab, tmp_path, *APPLY) for _ in range(2)]
    for process in both:
        process.communicate(timeout=100)
    assert {process.returncode for process in both} == {0, 6}
    assert_finished(lab)
