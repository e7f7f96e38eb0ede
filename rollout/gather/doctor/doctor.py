"""The observing part of `rollout doctor`: every host asked a second question."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass

from rollout.errors import SshError
from rollout.gather.doctor.command import DOCTOR_COMMAND, HostHealth, parse_health
from rollout.model.host import Host
from rollout.ports import Clock, CommandResult, HostExecutor


@dataclass(frozen=True, slots=True)
class Examination:
    """A host's health, and how many seconds its clock is ahead of ours; `off_by` None where it did not tell.

    `margin` is how far, in seconds, `off_by` may be wrong: the time that the question took.
    """

    health: HostHealth
    off_by: float | None = None
    margin: float = 0.0


def examine_all(
    hosts: Mapping[str, Host],
    shell: HostExecutor,
    clock: Clock,
    *,
    timeout: float,
    concurrency: int,
    on_result: Callable[[str, Examination], None],
) -> Mapping[str, Examination]:
    """Every host's second answer, by the same names, each told to `on_result` as it comes.

    A host that fails here gives its reason, and raises nothing.
    """
    asked_at = clock.now().timestamp()
    examinations: dict[str, Examination] = {}
    with closing(shell.run_on_all(hosts, DOCTOR_COMMAND, timeout=timeout, concurrency=concurrency)) as answers:
        for name, answer in answers:
            examinations[name] = _examination(answer, asked_at, clock.now().timestamp())
            on_result(name, examinations[name])
    return examinations


def _examination(answer: CommandResult | SshError, asked_at: float, answered_at: float) -> Examination:
    """What it says of its clock is as exact as the time is short in which it must have been asked."""
    if isinstance(answer, SshError):
        return Examination(HostHealth(problem=answer.message))
    health = parse_health(answer)
    if health.clock is None:
        return Examination(health)
    # the host counts whole seconds: on average half of one is lost
    return Examination(health, health.clock + 0.5 - (asked_at + answered_at) / 2, (answered_at - asked_at) / 2 + 0.5)
