"""What says that a host needs a reboot, from the probe to the proof: the real program, a pair of
hosts a source.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from rollout.errors import ExitCode
from rollout.lab.hosts.faults import HostFaults, SshFault, SudoFault
from rollout.lab.hosts.machine import STAGED_LOCK
from rollout.lab.hosts.programs import checksum_of
from rollout.lab.lab import Lab
from rollout.lab.scenario import ScenarioWorkload, WorkloadKind, load_scenario
from rollout.model.marks import FLUO_PREFIX
from tests.apply.conftest import Rollout, Started, command
from tests.apply.test_courtesy import heard
from tests.apply.test_resume import stopped_at
from tests.conftest import StartLab
from tests.ended import end_of
from tests.state import annotations, inflict, marks_of, record, unlock, write

SENTINEL = "test -e /run/needs-restart -o -e /etc/needs-restart"


COMMAND = ("--set", f"detect.command={SENTINEL}")


EVERY = (
    *("--set", "detect.sources=update-engine,annotation,reboot-required"),
    *("--set", "detect.sources=rpm-ostree,command"),
    *COMMAND,
)


QUICK = (
    *("--yes", "-o", "json", "--set", "waves.health-checks=1", "--ready-timeout", "5s"),
    *("--max-failures", "9"),
)


FLUO = FLUO_PREFIX + "reboot-needed"


OWN = "node-rollout.dev/reboot-needed"


OLD = "41.20250117.3.0"
NEW = "41.20250130.3.0"


OLD_SUM, NEW_SUM = (checksum_of(version)[:12] for version in (OLD, NEW))


FINALIZE = "sudo -n rpm-ostree finalize-deployment --allow-missing-checksum"


def nodes(*names: str) -> tuple[str, ...]:
    return tuple(word for name in names for word in ("--node", name))


@pytest.fixture(scope="module")
def untouched(shared_lab: StartLab) -> Iterator[Lab]:
    """One lab for all that only look."""
    lab = shared_lab("sources")
    yield lab
    assert sum(lab.scoreboard().reboots.values()) == 0


# FLUO's agent runs everywhere, and on one node does nothing.
WITH_AGENTS = msgspec.structs.replace(
    load_scenario("sources"),
    workloads=(
        ScenarioWorkload(
            kind=WorkloadKind.DAEMON_SET, name="flatcar-linux-update-agent", namespace="reboot"
        ),
    ),
)


PAIRS = {
    "annotation": (
        *("worker-1", "worker-2", ()),
        f"the host rebooted, but the reboot was not verified by annotation: its annotation is still true: {FLUO}",
    ),
    "reboot-required": (
        *("worker-4", "worker-5", ()),
        (
            "the host rebooted, but the reboot was not verified by reboot-required: a reboot is still needed"
            " (/run/reboot-required)"
        ),
    ),
    "rpm-ostree": (
        *("worker-6", "worker-7", ()),
        (
            f"the host rebooted, but the reboot was not verified by rpm-ostree: deployment {OLD_SUM} is booted, not"
            f" {NEW_SUM}"
        ),
    ),
    "command": (
        *("worker-8", "worker-9", COMMAND),
        (
            "the host rebooted, but the reboot was not verified by command: a reboot is still needed"
            " (detect.command exited with 0)"
        ),
    ),
}


@pytest.mark.sample
@pytest.mark.parametrize("source", PAIRS)
def test_each_source_takes_its_hosts_and_proves_their_reboots(
    source: str, started: Started, rollout: Rollout
) -> None:
    lab = started(WITH_AGENTS, 12)
    content, discontent, flags, why = PAIRS[source]
    ended = rollout(
        lab,
        "apply",
        "--set",
        f"detect.sources={source}",
        *flags,
        *nodes(content, discontent),
        *QUICK,
    ).ends(ExitCode.PARTIAL)
    assert ended.outcomes == {content: "succeeded", discontent: "rolled-back"}
    assert ended.failures[discontent]["message"] == why
    planned = {node["name"]: node for wave in ended.plan["waves"] for node in wave["nodes"]}
    assert all(node["detected_by"] == [source] and node["staged"] for node in planned.values())
    score = lab.scoreboard()
    assert {name: count for name, count in score.reboots.items() if count} == {
        content: 1,
        discontent: 1,
    }
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert score.killed == ()
    assert score.budgets_broken == ()
    # what was shown to be done is not done again
    again = rollout(
        lab, "plan", "-o", "json", "--set", f"detect.sources={source}", *flags, *nodes(content)
    )
    assert [left["reason"] for left in json.loads(again.stdout)["excluded"]] == ["no-update"]


def test_a_persons_annotation_is_taken_away_once_it_is_fulfilled_and_no_earlier(
    started: Started, rollout: Rollout
) -> None:
    """The second host fell back to the deployment from before."""
    lab = started("sources", 12)
    write(lab, "worker-7", "annotations", **{OWN: "true"})
    words = (
        "apply",
        "--set",
        "detect.sources=annotation,rpm-ostree",
        *nodes("worker-3", "worker-7"),
        *QUICK,
    )
    ended = rollout(lab, *words)
    assert ended.outcomes == {"worker-3": "succeeded", "worker-7": "rolled-back"}, ended.stderr
    assert marks_of(lab, "worker-3").keys() == {"last-result"}
    assert annotations(lab, "worker-7")[OWN] == "true"


def again(lab: Lab, node: str) -> None:
    """As by a person, or a crash: what is to be seen now is not of the boot that was proven."""
    machine = lab.machines[node]
    machine.files.pop("/etc/needs-restart")
    machine.reboot()


def closed(lab: Lab, node: str) -> None:
    lab.machines[node].inflict(HostFaults(ssh=SshFault.CLOSED))


@pytest.mark.sample
@pytest.mark.parametrize(
    ("meanwhile", "why"),
    [(again, "the host has rebooted again since the check"), (closed, "connection")],
)
def test_another_boot_and_silence_prove_nothing(
    meanwhile: Callable[[Lab, str], None], why: str, started: Started, tmp_path: Path
) -> None:
    lab = started("sources", 12)
    flags = (
        "--set",
        "detect.sources=command",
        *COMMAND,
        *nodes("worker-9"),
        "--ready-timeout",
        "6s",
    )
    process = command(
        lab, tmp_path, "apply", *flags, "--yes", "-o", "json", "--set", "waves.health-checks=1"
    )
    heard(process, "waiting for verification")
    lab.call(lambda: meanwhile(lab, "worker-9"))
    (end,) = [line for line in end_of(process).lines if line["type"] == "node_finished"]
    assert (end["outcome"], "not verified by command" in end["message"]) == ("rolled-back", True), (
        end
    )
    assert why in end["message"]


def test_a_locked_deployment_waits_for_the_command_that_unlocks_it(
    started: Started, rollout: Rollout
) -> None:
    lab = started("sources", 12)
    flags = ("--set", "detect.sources=rpm-ostree", *nodes("cp-2"))
    left = rollout(lab, "apply", *flags, *QUICK).ends(ExitCode.PARTIAL)
    assert [(item["node"], item["reason"]) for item in left.plan["excluded"]] == [
        ("cp-2", "inhibited")
    ]
    assert FINALIZE in left.plan["excluded"][0]["message"]
    ended = rollout(lab, "apply", *flags, *QUICK, "--set", f"reboot.command={FINALIZE}").ends(0)
    assert ended.plan["waves"][0]["nodes"][0]["staged_version"] == NEW
    machine = lab.machines["cp-2"]
    assert machine.os_version == NEW
    assert machine.reboots == 1
    assert STAGED_LOCK not in machine.files


def test_status_and_plan_name_who_says_so(untouched: Lab, rollout: Rollout) -> None:
    shown = {
        row["node"]: row
        for row in json.loads(rollout(untouched, "status", "-o", "json", *EVERY).stdout)["nodes"]
    }
    assert {name: ",".join(row["detected_by"]) for name, row in shown.items()} == {
        "cp-1": "update-engine,reboot-required",
        "cp-2": "rpm-ostree",
        "cp-3": "",
        **dict.fromkeys(("worker-1", "worker-2", "worker-3"), "annotation"),
        **dict.fromkeys(("worker-4", "worker-5"), "reboot-required"),
        **dict.fromkeys(("worker-6", "worker-7"), "rpm-ostree"),
        **dict.fromkeys(("worker-8", "worker-9"), "command"),
    }
    assert [name for name, row in shown.items() if not row["needs_reboot"]] == ["cp-3"]
    assert shown["worker-6"]["running_version"] == OLD
    assert shown["worker-6"]["staged_version"] == NEW
    ubuntu = shown["worker-4"]
    assert (
        ubuntu["detail"]
        == "/run/reboot-required for linux-image-6.8.0-51-generic, linux-base, libc6 and 1 more"
    )
    assert ubuntu["running_version"] == "24.04"
    assert ubuntu["staged_version"] == ""
    assert ubuntu["error"] == ""
    text = rollout(untouched, "plan", "--max-unavailable", "9", *EVERY).stdout
    for said in (
        "24.04 (reboot-required)",
        f"{OLD} → {NEW}",
        "(annotation)",
        "(command)",
        "inhibited",
    ):
        assert said in text
    assert "detect.sources" in text


REBOOT_COMMAND = "sudo -n shutdown -r now 'by rollout'"


def reboots_by(lab: Lab, name: str, command: str) -> int:
    return lab.machines[name].run_as_root.count(command)


def test_own_commands_stand_in_no_plan_and_on_no_cluster_and_are_wanted_again(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("sources", 12)
    saved = str(tmp_path / "own.plan")
    flags = ("--set", "detect.sources=command", *nodes("worker-8"))
    own = ("--set", f"reboot.command={REBOOT_COMMAND}")
    refused = rollout(lab, "plan", *flags)
    assert refused.code == ExitCode.USAGE
    assert "detect.sources includes command, but detect.command is not set" in refused.stderr
    rollout(lab, "plan", *flags, *COMMAND, *own, "--out", saved).ends(0)
    for given, said in (
        (own, "with detect.command, which is not set now"),
        (COMMAND, "with reboot.command, which is not set now"),
        (
            ("--set", "detect.sources=command", *COMMAND, *own),
            "--set detect.sources cannot be used with a saved plan",
        ),
    ):
        ended = rollout(lab, "apply", saved, *given)
        assert (ended.code, said in ended.stderr) == (ExitCode.USAGE, True), ended.stderr
    assert stopped_at(lab, tmp_path, "draining", *flags, *COMMAND, *own) == "worker-8"
    for text in (Path(saved).read_text(), json.dumps(record(lab))):
        assert not [word for word in ("needs-restart", "shutdown") if word in text]
    unlocked = ("resume", "--yes", "-o", "json", *unlock(lab))
    for given in (own, COMMAND):
        rollout(lab, *unlocked, *given).ends(ExitCode.USAGE)
    ended = rollout(lab, *unlocked, *COMMAND, *own)
    assert (ended.code, ended.summary["succeeded"]) == (0, ["worker-8"]), ended.stderr
    assert "shutdown -r" not in ended.stdout
    assert reboots_by(lab, "worker-8", "shutdown -r now by rollout") == 1
    assert reboots_by(lab, "worker-8", "systemctl reboot") == 0
    assert lab.scoreboard().clean


@pytest.mark.sample
@pytest.mark.parametrize("source", ["rpm-ostree", "command"])
def test_the_proof_is_made_by_whoever_goes_on(
    source: str, started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    """What asked for the reboot stands on the Node."""
    lab = started("sources", 12)
    _, discontent, command, why = PAIRS[source]
    rules = ("--set", f"detect.sources={source}", *command, "--ready-timeout", "5s")
    node = stopped_at(lab, tmp_path, "rebooting", *rules, *nodes(discontent))
    unlocked = ("resume", "--yes", "-o", "json", *unlock(lab))
    ended = rollout(lab, *unlocked, *command)
    assert ended.outcomes == {node: "rolled-back"}, ended.stderr
    assert ended.failures[node]["message"] == why
    assert not lab.scoreboard().cordons_left


# Hosts that are left alone: what would keep the reboot off, or make it twice.


WORKER_1 = ("--node", "worker-1")


OBSTACLES = {
    "worker-1": (HostFaults(inhibited=True), "inhibited", "backup (nightly backup)"),
    "worker-2": (
        HostFaults(shuts_down_after_seconds=9000),
        "shutdown-pending",
        "a reboot is scheduled on the host in 2h",
    ),
    "worker-3": (HostFaults(sudo=SudoFault.PASSWORD), "no-sudo", "sudo asks for a password"),
    "worker-6": (HostFaults(sudo=SudoFault.NO_TERMINAL), "no-sudo", "sudo wants a terminal"),
    "worker-7": (HostFaults(missing=("sudo",)), "no-sudo", "sudo is not installed"),
    "worker-8": (HostFaults(sudo=SudoFault.HANGS), "no-sudo", "sudo did not respond in time"),
}


def test_hosts_that_must_not_or_cannot_be_rebooted_are_left_out(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 12)
    for name, (faults, _, _) in OBSTACLES.items():
        inflict(lab, faults, name)
    plan = json.loads(rollout(lab, "plan", "-o", "json").stdout)
    left_out = {found["node"]: found for found in plan["excluded"]}
    assert {name: found["reason"] for name, found in left_out.items()} == {
        name: reason for name, (_, reason, _) in OBSTACLES.items()
    }
    doctor = json.loads(rollout(lab, "doctor", "-o", "json").stdout)
    failed = {check["subject"]: check for check in doctor["checks"] if check["verdict"] == "fail"}
    for name, (_, _, said) in OBSTACLES.items():
        assert said in left_out[name]["message"]
        assert said in failed[name]["message"]
        assert failed[name]["fix"]
    assert "requiretty" in failed["worker-6"]["fix"]
    assert "Install sudo" in failed["worker-7"]["fix"]
    # an own command may need no sudo; what speaks against the reboot itself holds for it, too
    own = json.loads(
        rollout(lab, "plan", "-o", "json", "--set", "reboot.command=reboot-host").stdout
    )
    assert {found["reason"] for found in own["excluded"]} == {"inhibited", "shutdown-pending"}


def test_a_lock_taken_after_the_plan_keeps_the_host_up(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 4)
    saved = str(tmp_path / "plan")
    rollout(lab, "plan", *WORKER_1, "--out", saved).ends(0)
    inflict(lab, HostFaults(inhibited=True), "worker-1")
    ended = rollout(lab, "apply", saved, "-o", "json").ends(4)
    assert ended.summary["skipped"] == ["worker-1"]
    assert "blocked by backup" in ended.summary["reasons"]["worker-1"]
    score = lab.scoreboard()
    assert score.reboots["worker-1"] == 0
    assert score.evictions == 0
