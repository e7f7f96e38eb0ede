"""What an operator reads at night: each no once, and not a line for each host of a thousand."""

from dataclasses import dataclass, field

from rollout.adapters.clock import SystemClock
from rollout.server.protocol import Answer, Ask, Denied, Kind
from rollout.server.service import AskLog

FULL = Answer(Kind.SEMAPHORE_FULL, "all 1 slots of the group default are held, by worker-1")
DRAINING = Answer(Kind.WAITING_FOR_DRAIN, "worker-1 is draining")
STRANGER = Answer(Kind.UNKNOWN_ID, "no Node has the machine id that this id is made of")


class Passing(SystemClock):
    """A clock that is put on by hand."""

    passed = 0.0

    def monotonic(self) -> float:
        return self.passed


def name_of(asked_as: str) -> str:
    if asked_as.startswith("x"):
        raise Denied(Kind.UNKNOWN_ID, "")
    return f"worker-{asked_as}"


@dataclass
class Written:
    """A log, and what stands in it."""

    clock: Passing = field(default_factory=Passing)
    lines: list[str] = field(default_factory=list)
    log: AskLog = field(init=False)

    def __post_init__(self) -> None:
        self.log = AskLog(self.clock, self.lines.append, name_of)

    def note(self, asked_as: str, answer: Answer, group: str = "default") -> int:
        """How many lines that makes."""
        before = len(self.lines)
        self.log.note(Ask(asked_as, group), answer)
        return len(self.lines) - before


def test_a_host_that_is_told_the_same_again_is_no_news() -> None:
    log = Written()
    assert [log.note("1", DRAINING) for _ in range(5)] == [1, 0, 0, 0, 0]
    assert log.lines == ["worker-1 asks, group default: waiting_for_drain: worker-1 is draining"]
    assert log.note("2", DRAINING) == 1
    assert [log.note("1", answer) for answer in (Answer(Kind.GRANTED, "drained"), DRAINING)] == [1, 1]


def test_what_all_hosts_are_told_is_told_of_the_first_and_again_in_an_hour() -> None:
    log = Written()
    assert sum(log.note(str(number), FULL) for number in range(1000)) == 1
    assert log.note("7", Answer(Kind.SEMAPHORE_FULL, "all 1 slots of the group default are held, by worker-2")) == 1
    assert sum(log.note(str(number), FULL) for number in range(1000)) == 0
    log.clock.passed = 3601
    assert sum(log.note(str(number), FULL) for number in range(1000)) == 1


def test_strangers_fill_no_log_and_keep_no_known_host_out_of_it() -> None:
    log = Written()
    assert sum(log.note(f"x{number}", STRANGER) for number in range(20_000)) == 51
    assert log.lines[-1] == "more than 50 unknown hosts or groups in an hour: the others are not told"
    assert log.note("1", DRAINING) == 1
    assert log.note("1", DRAINING) == 0
    log.clock.passed = 3601
    assert [log.note("xy", STRANGER) for _ in range(2)] == [1, 0]
