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
from rollout.model.text import excerpt
from rollout.ports import CommandResult, HostExecutor, HostShell

_BUG_HINT = "This is a bug in rollout: report it where you got rollout."
_FAILURE_KINDS: tuple[tuple[type[SshError], ProbeFailureKind], ...] = (
    (HostKeyError, ProbeFailureKind.HOST_KEY),
    (SshAuthError, ProbeFailureKind.AUTH),
    (SshTimeoutError, ProbeFailureKind.TIMEOUT),
    (SshUnreachableError, ProbeFailureKind.UNREACHABLE),
)


def observe(host: Host, shell: HostShell, *, probe: Probe, timeout: float) -> HostObservation:
    if not host.address:
        return _no_address_failure(host)
    try:
        result = shell.run(host, probe.command, timeout=timeout)
    except SshError as error:
        return _probe_failure(host, error)
    return _parse_or_fail(host, result, probe)


def poll(
    hosts: Mapping[str, Host],
    executor: HostExecutor,
    *,
    probe: Probe,
    timeout: float,
    concurrency: int,
    on_answer: Callable[[], None],
) -> dict[str, HostObservation]:
    """Probe many hosts at once.

    `timeout` is per host, in seconds. `on_answer` runs in the caller's thread. An interrupt does
    not wait for the hosts.
    """
    # Answers replace these failures, which keep the order of `hosts`.
    observations: dict[str, HostObservation] = {}
    for name, host in hosts.items():
        observations[name] = _no_address_failure(host)
    answers = observe_all(hosts, executor, probe=probe, timeout=timeout, concurrency=concurrency)
    with closing(answers):
        for name, observation in answers:
            observations[name] = observation
            on_answer()
    return observations


def observe_all(
    hosts: Mapping[str, Host],
    executor: HostExecutor,
    *,
    probe: Probe,
    timeout: float,
    concurrency: int,
) -> Generator[tuple[str, HostObservation]]:
    """Yield observations as they arrive, of hosts with an address."""
    with_address = {name: host for name, host in hosts.items() if host.address}
    answers = executor.run_on_all(
        with_address, probe.command, timeout=timeout, concurrency=concurrency
    )
    with closing(answers):
        for name, answer in answers:
            host = hosts[name]
            if isinstance(answer, SshError):
                yield name, _probe_failure(host, answer)
            else:
                yield name, _parse_or_fail(host, answer, probe)


def _parse_or_fail(host: Host, result: CommandResult, probe: Probe) -> HostObservation:
    try:
        return parse_probe(host, result, probe)
    except Exception as error:  # noqa: BLE001 - one host's answer must not stop the others
        message = f"its response cannot be read: {excerpt(repr(error))}"
        return ProbeFailure(
            host,
            ProbeFailureKind.GARBLED,
            message,
            _BUG_HINT,
        )


def _no_address_failure(host: Host) -> ProbeFailure:
    return ProbeFailure(
        host,
        ProbeFailureKind.NO_ADDRESS,
        "no address is known for it",
        "Its Node reports no usable address. Add the host to an inventory.",
    )


def _probe_failure(host: Host, error: SshError) -> ProbeFailure:
    # Such as Ansible's own errors.
    failure_kind = ProbeFailureKind.GARBLED
    for error_type, kind in _FAILURE_KINDS:
        if isinstance(error, error_type):
            failure_kind = kind
            break
    return ProbeFailure(
        host=host,
        kind=failure_kind,
        message=error.message,
        hint=error.hint,
        summary=error.summary if isinstance(error, HostKeyError) else "",
    )


Answer = CommandResult | SshError
T = TypeVar("T")


def ask_in_threads(
    hosts: Mapping[str, Host], ask: Callable[[Host], T], *, concurrency: int
) -> Generator[tuple[str, T | SshError]]:
    """Yield answers or failures by node as they arrive.

    Closing the generator does not wait for the hosts.
    """
    answers = threads.side_by_side(
        hosts, lambda name: _ask_or_catch(hosts[name], ask), most=concurrency, name="probe"
    )
    with closing(answers):
        yield from answers


def _ask_or_catch(host: Host, ask: Callable[[Host], T]) -> T | SshError:
    try:
        return ask(host)
    except SshError as error:
        return error
    except Exception as error:  # noqa: BLE001 - an unexpected error must not stop the other hosts
        return SshUnreachableError(
            f"the query failed: {error!r}",
            hint=_BUG_HINT,
        )
