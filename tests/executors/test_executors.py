"""One suite for both executors: what hosts say and do must come to the same, whatever carries the
commands.
"""

import json
import signal

import pytest

from rollout.lab.hosts.faults import (
    BusFault,
    HostFaults,
    HostKeyFault,
    RebootFault,
    SshFault,
    SudoFault,
)
from tests.conftest import StartLab
from tests.executors.conftest import Program, ansible_processes
from tests.state import rebooted, unlock
from tests.waiting import wait_until

pytestmark = pytest.mark.sample

APPLY = ("apply", "--yes", "-o", "json", "--control-plane", "exclude", "--settle-timeout", "20s")
TWO = (
    *APPLY,
    *("--node", "worker-1,worker-2", "--max-unavailable", "2", "--disable-eviction", "--force"),
)
EVERYTHING = (
    *APPLY,
    *("--max-unavailable", "100%", "--max-failures", "100%", "--disable-eviction", "--force"),
)


def test_status_says_why_a_host_gives_no_answer(program: Program, with_faults: StartLab) -> None:
    lab = with_faults(
        11,
        {
            "worker-1": HostFaults(ssh=SshFault.CLOSED),
            "worker-2": HostFaults(ssh=SshFault.KEY_REFUSED),
            "worker-3": HostFaults(host_key=HostKeyFault.OTHER),
            "worker-4": HostFaults(garbage=True),
            "worker-5": HostFaults(bus=BusFault.DENIED),
            "worker-6": HostFaults(sudo=SudoFault.REFUSED),
            "worker-7": HostFaults(sudo=SudoFault.PASSWORD, bus=BusFault.DENIED),
        },
    )
    ended = program.run(lab, "status", "-o", "json").ends(0)
    nodes = {node["node"]: node for node in json.loads(ended.stdout)["nodes"]}
    assert len(nodes) == 11
    errors = {name: node["error"] for name, node in nodes.items() if node["error"]}
    assert set(errors) == {"worker-1", "worker-2", "worker-3", "worker-4"}
    assert "refused" in errors["worker-1"]
    assert "refuses user core" in errors["worker-2"] or "Permission denied" in errors["worker-2"]
    assert "host key" in errors["worker-3"]
    assert "changed" in errors["worker-3"]
    assert "the host did not run the command" in errors["worker-4"]
    assert nodes["worker-5"]["operation"] == "UPDATE_STATUS_UPDATED_NEED_REBOOT"
    reasons = {
        name: node["reason"].partition(":")[0] for name, node in nodes.items() if node["reason"]
    }
    assert reasons["worker-6"] == "no-sudo"
    assert reasons["worker-7"] == "unknown-status"
    assert {reasons[name] for name in errors} <= {"unreachable", "unknown-status"}
    healthy = nodes["worker-8"]
    assert healthy["running_version"] == "4081.2.0"
    assert healthy["staged_version"] == "4152.2.0"


def test_apply_takes_every_host_to_its_own_end(program: Program, with_faults: StartLab) -> None:
    """A wave of hosts that each do something else when they are told to reboot."""
    lab = with_faults(
        9,
        {
            "worker-2": HostFaults(reboot=RebootFault.NEVER_RETURNS),
            "worker-3": HostFaults(reboot=RebootFault.ROLLS_BACK),
            "worker-4": HostFaults(reboot=RebootFault.IGNORED),
            "worker-5": HostFaults(host_key=HostKeyFault.CHANGES_AT_REBOOT),
        },
    )
    ended = program.run(lab, *EVERYTHING, "--reboot-timeout", "5s").ends(4)
    assert ended.outcomes == {
        "worker-1": "succeeded",
        "worker-2": "not-back",
        "worker-3": "rolled-back",
        "worker-4": "not-rebooted",
        "worker-5": "not-back",
        "worker-6": "succeeded",
    }
    assert "cannot be trusted" in ended.failures["worker-5"]["message"]
    assert "host key" in ended.failures["worker-5"]["message"]
    score = lab.scoreboard()
    assert {name: score.reboots[name] for name in ended.outcomes} == {
        **dict.fromkeys(ended.outcomes, 1),
        **dict.fromkeys(("worker-2", "worker-4"), 0),
    }
    assert set(score.cordons_left) == {"worker-2", "worker-5"}
    assert score.rebooted_undrained == ()


def test_a_refused_reboot_gives_the_node_back(program: Program, with_faults: StartLab) -> None:
    lab = with_faults(5)
    process = program.start(lab, *APPLY, "--node", "worker-1")
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line).get("phase") == "draining":
            lab.call(lambda: lab.machines["worker-1"].inflict(HostFaults(sudo=SudoFault.REFUSED)))
            break
    # what was read ahead is in the stream's own buffer, which communicate passes over
    stdout = process.stdout.read()
    process.communicate(timeout=60)
    (entry,) = json.loads(stdout.splitlines()[-1])["failed"]
    assert process.returncode == 4
    assert entry["outcome"] == "reboot-refused"
    assert not entry["left_cordoned"]
    assert "not allowed" in entry["message"]
    assert lab.scoreboard().reboots["worker-1"] == 0
    assert lab.scoreboard().cordons_left == ()


def test_a_host_that_babbles_when_it_is_to_reboot_is_asked_again(
    program: Program, with_faults: StartLab
) -> None:
    """An answer without a boot ID says nothing about the boot: neither that it is over, nor that it
    stands.
    """
    lab = with_faults(5)
    process = program.start(lab, *APPLY, "--node", "worker-1", "--reboot-timeout", "60s")
    assert process.stdout is not None
    babbling = False
    for line in map(json.loads, process.stdout):
        if line["type"] == "step" and line["phase"] == "draining" and not babbling:
            babbling = True
            lab.call(lambda: lab.machines["worker-1"].inflict(HostFaults(garbage=True)))
        elif line["type"] == "step" and line["phase"] == "rebooting" and line["detail"]:
            lab.call(lambda: lab.machines["worker-1"].inflict(HostFaults()))
            break
    process.communicate(timeout=100)
    assert process.returncode == 0
    assert lab.scoreboard().reboots["worker-1"] == 1


def test_another_machine_goes_on_after_kill_9(program: Program, with_faults: StartLab) -> None:
    lab = with_faults(5)
    with program.ended_at(lab, "rebooting", signal.SIGKILL, *TWO):
        wait_until(lambda: not ansible_processes(program.home))
    ended = program.run(lab, "resume", "--yes", "-o", "json", *unlock(lab))
    assert ended.code == 0, ended.stdout + ended.stderr
    score = lab.scoreboard()
    assert {score.reboots[name] for name in ("worker-1", "worker-2")} == {1}
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert score.rebooted_undrained == ()


def test_a_stop_lets_those_in_flight_finish_and_leaves_nothing_running(
    program: Program, with_faults: StartLab
) -> None:
    lab = with_faults(6)
    with program.ended_at(lab, "draining", signal.SIGINT, *APPLY, "--max-unavailable", "1") as node:
        score = lab.scoreboard()
        assert rebooted(lab) == {node}
        assert score.cordons_left == ()
        assert score.annotations_left == {}
        assert ansible_processes(program.home) == []


def test_every_source_is_asked_in_the_same_way(program: Program, with_faults: StartLab) -> None:
    """Braces of the operator's own command are no template."""
    lab = with_faults(12, scenario_name="sources")
    command = "test -e /etc/needs-restart && echo '{{ needs }} a \"restart\"'"
    detect = (
        *("--set", "detect.sources=annotation,reboot-required,rpm-ostree,command"),
        *("--set", f"detect.command={command}"),
    )
    ended = program.run(lab, "status", "-o", "json", *detect)
    rows = {row["node"]: row for row in json.loads(ended.stdout)["nodes"]}
    assert {
        name: ",".join(row["detected_by"]) for name, row in rows.items() if row["needs_reboot"]
    } == {
        "cp-1": "reboot-required",
        **dict.fromkeys(("cp-2", "worker-6", "worker-7"), "rpm-ostree"),
        **dict.fromkeys(("worker-1", "worker-2", "worker-3"), "annotation"),
        **dict.fromkeys(("worker-4", "worker-5"), "reboot-required"),
        "worker-9": "command",
    }
    assert rows["worker-9"]["detail"] == 'detect.command exited with 0: {{ needs }} a "restart"'
    applied = program.run(
        lab,
        *APPLY,
        *("--set", "detect.sources=rpm-ostree,reboot-required", "--node", "worker-4,worker-6"),
    ).ends(0)
    assert set(applied.summary["succeeded"]) == {"worker-4", "worker-6"}
