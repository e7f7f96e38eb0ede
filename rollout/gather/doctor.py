"""The observing part of `rollout doctor`: rights asked one by one, and every host asked a second question."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rollout.errors import SshError
from rollout.gather.doctor_command import DOCTOR_COMMAND, HostHealth, parse_health
from rollout.model.host import Host
from rollout.ports import Clock, HostShell


@dataclass(frozen=True, slots=True)
class Examination:
    """A host's health, and how many seconds its clock is ahead of ours; `off_by` None where it did not tell.

    `margin` is how far, in seconds, `off_by` may be wrong: the time that the question took.
    """

    health: HostHealth
    off_by: float | None = None
    margin: float = 0.0


def examine(host: Host, shell: HostShell, clock: Clock, *, timeout: float) -> Examination:
    """One host's second answer. A host that fails here gives its reason, and raises nothing."""
    asked = clock.now().timestamp()
    try:
        result = shell.run(host, DOCTOR_COMMAND, timeout=timeout)
    except SshError as error:
        return Examination(HostHealth(problem=error.message))
    answered = clock.now().timestamp()
    health = parse_health(result)
    if health.clock is None:
        return Examination(health)
    # the host counts whole seconds: on average half of one is lost
    return Examination(health, health.clock + 0.5 - (asked + answered) / 2, (answered - asked) / 2 + 0.5)


def examine_all(
    hosts: Mapping[str, Host],
    shell: HostShell,
    clock: Clock,
    *,
    timeout: float,
    concurrency: int,
) -> Mapping[str, Examination]:
    """Every host's second answer, by the same names."""
    ask: Callable[[Host], Examination] = lambda host: examine(host, shell, clock, timeout=timeout)  # noqa: E731
    asked: Sequence[Host] = tuple(hosts.values())
    with ThreadPoolExecutor(max_workers=max(1, concurrency), thread_name_prefix="doctor") as pool:
        return dict(zip(hosts, pool.map(ask, asked), strict=True))
