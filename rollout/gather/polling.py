"""Many hosts asked at once, each with its own deadline and exactly one observation at the end.

A host that fails, hangs until its deadline or raises something unforeseen costs its own answer and one of the
threads for a while, never another host's answer.
"""

from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from threading import Thread

from rollout.errors import (
    HostKeyError,
    SshAuthError,
    SshError,
    SshTimeoutError,
    SshUnreachableError,
)
from rollout.gather.probe import PROBE_COMMAND, parse_probe
from rollout.model.host import Host, HostObservation, ProbeFailure, ProbeFailureKind
from rollout.ports import HostShell

# Above what the probe takes where nobody answers on the bus: it cuts its questions off at 12 + 5 + 5 seconds,
# and on a host without `timeout` the client gives up by itself after 30.
PROBE_TIMEOUT = 45.0
CONCURRENCY = 32

_KINDS: tuple[tuple[type[SshError], ProbeFailureKind], ...] = (
    (HostKeyError, ProbeFailureKind.HOST_KEY),
    (SshAuthError, ProbeFailureKind.AUTH),
    (SshTimeoutError, ProbeFailureKind.TIMEOUT),
    (SshUnreachableError, ProbeFailureKind.UNREACHABLE),
)


def observe(host: Host, shell: HostShell, *, timeout: float = PROBE_TIMEOUT) -> HostObservation:
    """One host's facts, or why there are none, after at most `timeout` seconds. Never raises."""
    if not host.address:
        return ProbeFailure(
            host,
            ProbeFailureKind.NO_ADDRESS,
            f"{host.name}: no address is known for it",
            "Its Node reports none: name the host in an inventory.",
        )
    try:
        return parse_probe(host, shell.run(host, PROBE_COMMAND, timeout=timeout))
    except SshError as error:
        return ProbeFailure(host, _kind(error), error.message, error.hint)
    except Exception as error:  # noqa: BLE001 - one host's surprise must not end the others' questions
        return ProbeFailure(
            host, ProbeFailureKind.UNREACHABLE, f"{host.name}: asking it failed: {error!r}", "Please report this."
        )


def poll(
    hosts: Mapping[str, Host],
    shell: HostShell,
    *,
    timeout: float = PROBE_TIMEOUT,
    concurrency: int = CONCURRENCY,
    on_result: Callable[[str, HostObservation], None] | None = None,
) -> dict[str, HostObservation]:
    """Observations by the same names, in the order of `hosts`; `timeout` seconds for each host.

    At most `concurrency` connections at a time. `on_result` is called on the caller's thread, as answers
    arrive. An interrupt ends it at once: no further host is asked, and nobody waits for those being asked.
    """
    todo: SimpleQueue[tuple[str, Host]] = SimpleQueue()
    answers: SimpleQueue[tuple[str, HostObservation]] = SimpleQueue()
    for item in hosts.items():
        todo.put(item)
    # Daemons, unlike a pool's: the interpreter would wait for those of a pool at its end.
    for _ in range(min(max(1, concurrency), len(hosts))):
        Thread(target=_ask, args=(todo, answers, shell, timeout), name="probe", daemon=True).start()
    try:
        found = dict(_told(answers.get(), on_result) for _ in hosts)
    finally:
        _taken(todo)
    return {name: found[name] for name in hosts}


def _ask(
    todo: SimpleQueue[tuple[str, Host]],
    answers: SimpleQueue[tuple[str, HostObservation]],
    shell: HostShell,
    timeout: float,
) -> None:
    while (item := _next(todo)) is not None:
        name, host = item
        answers.put((name, observe(host, shell, timeout=timeout)))


def _next(todo: SimpleQueue[tuple[str, Host]]) -> tuple[str, Host] | None:
    try:
        return todo.get_nowait()
    except Empty:
        return None


def _taken(todo: SimpleQueue[tuple[str, Host]]) -> None:
    """Leave nothing in the queue for the threads to take up."""
    while _next(todo) is not None:
        pass


def _told(
    answer: tuple[str, HostObservation], on_result: Callable[[str, HostObservation], None] | None
) -> tuple[str, HostObservation]:
    if on_result is not None:
        on_result(*answer)
    return answer


def _kind(error: SshError) -> ProbeFailureKind:
    return next((kind for known, kind in _KINDS if isinstance(error, known)), ProbeFailureKind.GARBLED)
