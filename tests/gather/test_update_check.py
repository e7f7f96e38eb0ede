"""What becomes of one host's check, answer by answer."""

from dataclasses import replace

import pytest

from rollout.gather.updates import CheckOutcome, CheckResult, begun_check, check_refusal, concluded, heard
from rollout.model.host import (
    Host,
    HostFacts,
    HostObservation,
    ProbeFailure,
    ProbeFailureKind,
    UpdateOperation,
    UpdateStatus,
)
from rollout.model.quantity import Duration
from rollout.ports import CommandResult

HOST = Host("worker-1", "192.0.2.1")
TIMEOUT = Duration(600)
IDLE, CHECKING, AVAILABLE = UpdateOperation.IDLE, UpdateOperation.CHECKING, UpdateOperation.AVAILABLE
DOWNLOADING, NEED_REBOOT = UpdateOperation.DOWNLOADING, UpdateOperation.NEED_REBOOT
REPORTING = UpdateOperation.REPORTING_ERROR
AWAY = ProbeFailure(HOST, ProbeFailureKind.TIMEOUT, "worker-1: no answer")


def facts(operation: UpdateOperation, progress: float = 0.0, checked: int = 100, boot: str = "b1") -> HostFacts:
    version = "" if operation in (IDLE, CHECKING) else "4152.2.0"
    return HostFacts(
        host=HOST,
        update=UpdateStatus(operation, version, progress, checked),
        os_id="flatcar",
        running_version="4081.2.0",
        group="stable",
        boot_id=boot,
        machine_id="m",
        locksmithd_active=False,
        may_reboot=True,
    )


def ends(*answers: tuple[float, HostObservation], start: HostFacts | None = None) -> CheckResult | None:
    """The end after these answers, each `(seconds, answer)`; only the last may be one."""
    check = begun_check("worker-1", start or facts(IDLE))
    if check.may_be_asked:
        check = replace(check, asked_at=0.0)
    result = None
    for at, answer in answers:
        assert result is None, f"ended before {at}: {result}"
        check = heard(check, answer)
        result = concluded(check, at, TIMEOUT)
    return result


def outcome(result: CheckResult | None) -> CheckOutcome | None:
    return result.outcome if result else None


def test_an_update_is_followed_until_it_is_staged() -> None:
    result = ends(
        (2, facts(IDLE)),
        (4, facts(CHECKING)),
        (6, facts(AVAILABLE, checked=200)),
        (8, facts(DOWNLOADING, 0.1, 200)),
        (100, facts(DOWNLOADING, 0.9, 200)),
        (110, facts(UpdateOperation.VERIFYING, 0, 200)),
        (120, facts(UpdateOperation.FINALIZING, 0, 200)),
        (130, facts(NEED_REBOOT, 0, 200)),
    )
    assert result == CheckResult("worker-1", CheckOutcome.STAGED, "4152.2.0", "", 200)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([(2, facts(CHECKING)), (4, facts(IDLE))], "not reached"),
        ([(2, facts(CHECKING)), (4, facts(REPORTING))], "not reached"),
        ([(2, facts(DOWNLOADING, 0.4, 200)), (4, facts(REPORTING, 0, 200))], "the update failed"),
        ([(2, facts(DOWNLOADING, 0.4, 200)), (4, facts(IDLE, 0, 200))], "given up"),
        # restarted meanwhile, the engine has forgotten when it last asked
        ([(2, facts(CHECKING)), (4, facts(IDLE, checked=0))], "not reached"),
        ([(2, facts(IDLE)), (91, facts(IDLE))], "not reached"),
        ([(2, facts(CHECKING)), (4, AWAY), (60, facts(IDLE, boot="b2"))], "rebooted meanwhile"),
        ([(2, facts(NEED_REBOOT, boot="b2"))], "rebooted meanwhile"),
    ],
)
def test_failures(answers: list[tuple[float, HostObservation]], said: str) -> None:
    result = ends(*answers)
    assert outcome(result) is CheckOutcome.FAILED
    assert result is not None
    assert said in result.message
    assert not result.settled


def test_a_host_that_is_away_may_come_back_in_time() -> None:
    loading = facts(DOWNLOADING, 0.4, 200)
    assert outcome(ends((2, loading), (60, AWAY), (110, facts(NEED_REBOOT, 0, 200)))) is CheckOutcome.STAGED


@pytest.mark.parametrize(("last", "said"), [(facts(DOWNLOADING, 0.4, 200), "DOWNLOADING"), (AWAY, "no answer")])
def test_only_the_timeout_ends_what_does_not_move(last: HostObservation, said: str) -> None:
    result = ends((2, facts(DOWNLOADING, 0.4, 200)), (599, last), (600, last))
    assert outcome(result) is CheckOutcome.TIMED_OUT
    assert result is not None
    assert "--timeout 10m" in result.message
    assert said in result.message


@pytest.mark.parametrize(
    ("status", "stderr", "said"),
    [
        (0, "whatever", ""),
        (None, "", "the connection ended"),
        (1, "This account is not available", "it said: This account is not available"),
        (124, "\n@@rollout-probe client\n", "in time"),
        (
            134,
            (
                "\n@@rollout-probe client\nF1 x\n\n@@rollout-probe bus\nCall failed: Access denied\n"
                "\n@@rollout-probe sudo-bus\nsudo: a password is required\n"
            ),
            "Access denied; and sudo asks for a password",
        ),
        (1, "\n@@rollout-probe client\n\x1b[31mno\x1b[0m\n", "request: no"),
    ],
)
def test_why_a_host_does_not_take_the_question(status: int | None, stderr: str, said: str) -> None:
    told = check_refusal(CommandResult(status, "", stderr))
    assert said in told
    assert bool(told) is bool(said)
    assert told.isprintable()
