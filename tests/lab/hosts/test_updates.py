"""How an update goes on a simulated host: the states in their order, a download that rises, and each way to fail."""

import pytest

from rollout.lab.hosts.engine import UpdateEngine, UpdateOperation
from rollout.lab.hosts.faults import UpdateFault

NOW = 1_800_000_000
LIMIT = 40


def attempt(fault: UpdateFault, *, available: str | None = "4152.2.0") -> tuple[UpdateEngine, list[tuple[str, float]]]:
    """The engine after an attempt, or after many steps of it, and what it answered on the way."""
    engine = UpdateEngine(available=available, last_checked=7)
    assert engine.begin_attempt()
    answers = [engine.status()]
    while len(answers) < LIMIT and engine.advance(checked=NOW, share=0.25, fault=fault):
        answers.append(engine.status())
    answers.append(engine.status())
    told = [(answer.operation.removeprefix("UPDATE_STATUS_"), answer.progress) for answer in answers]
    return engine, [step for number, step in enumerate(told) if number == 0 or step != told[number - 1]]


def test_an_update_is_staged_through_all_states() -> None:
    engine, steps = attempt(UpdateFault.NONE)
    assert steps == [
        ("CHECKING_FOR_UPDATE", 0),
        ("UPDATE_AVAILABLE", 0),
        *(("DOWNLOADING", part) for part in (0, 0.25, 0.5, 0.75)),
        ("VERIFYING", 0),
        ("FINALIZING", 0),
        ("UPDATED_NEED_REBOOT", 0),
    ]
    assert (engine.staged, engine.last_checked) == ("4152.2.0", NOW)


def test_without_an_update_only_the_time_of_the_check_changes() -> None:
    engine, steps = attempt(UpdateFault.NONE, available=None)
    assert steps == [("CHECKING_FOR_UPDATE", 0), ("IDLE", 0)]
    assert engine.last_checked == NOW


@pytest.mark.parametrize(
    ("fault", "before", "checked"),
    [(UpdateFault.CHECK_FAILS, "CHECKING_FOR_UPDATE", 7), (UpdateFault.DOWNLOAD_FAILS, "DOWNLOADING", NOW)],
)
def test_failures_are_reported_and_leave_it_idle(fault: UpdateFault, before: str, checked: int) -> None:
    """The time of the check is that of the server's last answer."""
    engine, steps = attempt(fault)
    assert [step for step, _ in steps[-3:]] == [before, "REPORTING_ERROR_EVENT", "IDLE"]
    assert (engine.staged, engine.last_checked) == (None, checked)


def test_a_download_that_stalls_stays_where_it_is() -> None:
    engine, steps = attempt(UpdateFault.STALLS)
    assert steps[-1] == ("DOWNLOADING", 0.5)
    assert engine.operation is UpdateOperation.DOWNLOADING
