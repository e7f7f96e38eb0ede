"""What hosts are up to: one question each, and exactly one observation at the end, whatever the host does."""

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from typing import TypeVar

from rollout import threads
from rollout.errors import (
    HostKeyError,
    SshAuthError,
    SshError,
    SshTimeoutError,
    SshUnreachableError,
)
from rollout.gather.hosts.probe import parse_probe
from rollout.gather.hosts.probe_command import Probe
from rollout.model.host import Host, HostObservation, ProbeFailure, ProbeFailureKind
from rollout.ports import CommandResult, HostExecutor, HostShell

_KINDS: tuple[tuple[type[SshError], ProbeFailureKind], ...] = (
    (HostKeyError, ProbeFailureKind.HOST_KEY),
    (SshAuthError, ProbeFailureKind.AUTH),
    (SshTimeoutError, ProbeFailureKind.TIMEOUT),
    (SshUnreachableError, ProbeFailureKind.UNREACHABLE),
)


def observe(host: Host, shell: HostShell, *, probe: Probe, timeout: float) -> HostObservation:
    """One host's facts, or why there are none, after at most `timeout` seconds. Never raises."""
    if not host.address:
        return _no_address(host)
    try:
        return parse_probe(host, shell.run(host, probe.command, timeout=timeout), probe)
    except SshError as error:
        return _failure(host, error)


def poll(
    hosts: Mapping[str, Host],
    executor: HostExecutor,
    *,
    probe: Probe,
    timeout: float,
    concurrency: int,
    on_answer: Callable[[], None],
) -> dict[str, HostObservation]:
    """Observations by the same names, in the order of `hosts`; `timeout` seconds for each host.

    At most `concurrency` connections at a time. `on_answer` is called on the caller's thread, as
    answers arrive. An interrupt ends it at once: no further host is asked, and nobody waits for
    those being asked.
    """
    asked = {name: host for name, host in hosts.items() if host.address}
    by_name: dict[str, HostObservation] = {
        name: _no_address(host) for name, host in hosts.items() if name not in asked
    }
    with closing(
        executor.run_on_all(asked, probe.command, timeout=timeout, concurrency=concurrency)
    ) as answers:
        for name, answer in answers:
            host = hosts[name]
            by_name[name] = (
                _failure(host, answer)
                if isinstance(answer, SshError)
                else parse_probe(host, answer, probe)
            )
            on_answer()
    return {name: by_name[name] for name in hosts}


def _no_address(host: Host) -> ProbeFailure:
    return ProbeFailure(
        host,
        ProbeFailureKind.NO_ADDRESS,
        "no address is known for it",
        "Its Node reports none that can be used: name the host in an inventory.",
    )


def _failure(host: Host, error: SshError) -> ProbeFailure:
    kinds = (kind for error_type, kind in _KINDS if isinstance(error, error_type))
    kind = next(kinds, ProbeFailureKind.GARBLED)
    summary = error.summary if isinstance(error, HostKeyError) else ""
    return ProbeFailure(host, kind, error.message, error.hint, summary)


Answer = CommandResult | SshError
T = TypeVar("T")


def side_by_side(
    hosts: Mapping[str, Host], ask: Callable[[Host], T], *, concurrency: int
) -> Generator[tuple[str, T | SshError]]:
    """Each host's answer or failure as it comes, at most `concurrency` asked at a time, by a thread each.

    A host that fails, hangs until its deadline or raises something unforeseen costs its own answer
    and one of the threads for a while, never another host's answer. Closed, it ends at once: no
    further host is asked, and nobody waits for those being asked.
    """
    answers = threads.side_by_side(
        hosts, lambda name: _answer(hosts[name], ask), most=concurrency, name="probe"
    )
    with closing(answers):
        yield from answers


def _answer(host: Host, ask: Callable[[Host], T]) -> T | SshError:
    try:
        return ask(host)
    except SshError as error:
        return error
    except Exception as error:  # noqa: BLE001 - one host's surprise must not end the others' questions
        return SshUnreachableError(f"asking it failed: {error!r}", hint="Please report this.")
