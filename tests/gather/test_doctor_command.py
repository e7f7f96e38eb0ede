"""A host's second answer, whatever stands in it."""

import pytest

from rollout.gather.doctor.checks import Check, CheckName, Verdict
from rollout.gather.doctor.examination import HostHealth, UnitState, parse_health
from rollout.gather.doctor.hosts import host_checks
from rollout.gather.hosts.probe_command import MARKER
from rollout.model.host import Host, HostFacts, UpdateOperation, UpdateStatus
from rollout.ports import CommandResult

GOOD_ENGINE = UnitState("loaded", "active", "enabled")
GOOD_LOCKSMITH = UnitState("masked", "inactive", "masked")
FACTS = HostFacts(
    host=Host("worker-1", "192.0.2.1"),
    update=UpdateStatus(UpdateOperation.IDLE),
    os_id="flatcar",
    running_version="4081.2.0",
    group="stable",
    boot_id="b",
    machine_id="m",
    locksmithd_active=False,
    may_reboot=True,
)


def answer(engine: str, locksmithd: str) -> str:
    return f"welcome\n{MARKER} update-engine\n{engine}\n{MARKER} locksmithd\n{locksmithd}\n{MARKER} end\n"


def found(engine: UnitState, locksmithd: UnitState) -> dict[CheckName, Check]:
    examined = HostHealth(engine, locksmithd)
    return {check.check: check for check in host_checks("worker-1", FACTS, examined, keys_checked=True)}


@pytest.mark.parametrize(
    ("line", "wanted"), [("WantedBy=multi-user.target\r", True), ("WantedBy=\r", False), ("", False)]
)
def test_who_wants_a_unit_is_read(line: str, wanted: bool) -> None:  # noqa: FBT001 - a row of the table
    text = answer(f"LoadState=loaded\nActiveState=active\nUnitFileState=disabled\n{line}", "")
    unit = parse_health(CommandResult(0, text, "")).update_engine
    assert unit == UnitState("loaded", "active", "disabled", wanted=wanted)


@pytest.mark.parametrize(
    "text", ["", "nologin", f"{MARKER} update-engine\nLoadState=loaded\n", "\x1b[2J\x00\xff" * 999]
)
def test_an_answer_without_end_is_a_problem_told_safely(text: str) -> None:
    health = parse_health(CommandResult(0, text, "This account is not available\x1b[0m"))
    assert health.problem
    assert health.problem.isprintable()
    assert not health.update_engine.known


@pytest.mark.parametrize(
    ("engine", "verdict", "fix"),
    [
        (GOOD_ENGINE, Verdict.PASS, ""),
        (UnitState("loaded", "active", "disabled"), Verdict.WARN, "systemctl enable update-engine"),
        (UnitState("loaded", "active", "disabled", wanted=True), Verdict.PASS, ""),
        (UnitState("loaded", "failed", "enabled"), Verdict.FAIL, "enable --now"),
        (UnitState("masked", "inactive", "masked"), Verdict.FAIL, "unmask update-engine"),
        (UnitState("masked", "inactive", "masked-runtime"), Verdict.FAIL, "unmask --runtime update-engine"),
        (UnitState("not-found", "inactive", ""), Verdict.FAIL, "--exclude"),
        (UnitState(), Verdict.WARN, "systemctl status"),
    ],
)
def test_update_engine_has_to_be_unmasked_enabled_and_running(engine: UnitState, verdict: Verdict, fix: str) -> None:
    check = found(engine, GOOD_LOCKSMITH)[CheckName.UPDATE_ENGINE]
    assert check.verdict is verdict
    assert fix in check.fix


@pytest.mark.parametrize(
    ("locksmithd", "verdict"),
    [
        (GOOD_LOCKSMITH, Verdict.PASS),
        (UnitState("not-found", "inactive", ""), Verdict.PASS),
        (UnitState("loaded", "inactive", "disabled"), Verdict.WARN),
        (UnitState("masked", "inactive", "masked-runtime"), Verdict.WARN),
        (UnitState("loaded", "active", "enabled"), Verdict.FAIL),
        # masked while it runs: it goes on running until it is stopped
        (UnitState("masked", "active", "masked"), Verdict.FAIL),
    ],
)
def test_locksmithd_has_to_be_masked_and_stopped(locksmithd: UnitState, verdict: Verdict) -> None:
    assert found(GOOD_ENGINE, locksmithd)[CheckName.LOCKSMITHD].verdict is verdict
