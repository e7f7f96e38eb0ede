"""One observation a host, whatever the others do."""

import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import pytest

from rollout.errors import (
    HostKeyError,
    SshAuthError,
    SshError,
    SshTimeoutError,
    SshUnreachableError,
)
from rollout.gather.hosts.polling import observe, poll, side_by_side
from rollout.gather.hosts.probe_command import PROBE_COMMAND
from rollout.model.host import (
    Host,
    HostFacts,
    HostObservation,
    ProbeFailure,
    ProbeFailureKind,
)
from rollout.ports import CommandResult

HOST = Host("worker-1", "192.0.2.1")


BOOT_ID = "6cf6508a-76ca-44ee-bcb1-154767085359"


ANSWER = CommandResult(0, f"\n@@rollout-probe boot-id\n{BOOT_ID}\n@@rollout-probe end\n", "")


class ScriptedShell:
    """Answers as the script of the host's name says, and counts who asks at once."""

    def __init__(self, scripts: dict[str, Callable[[], CommandResult]] | None = None) -> None:
        self.scripts = scripts or {}
        self.asked: list[str] = []
        self.now = self.most = 0
        self._lock = threading.Lock()

    def run_if(
        self, host: Host, question: str, agreed: Callable[[CommandResult], bool], command: str, *, timeout: float
    ) -> CommandResult | None:
        raise AssertionError("polling only ever asks")

    def run_on_all(
        self, hosts: Mapping[str, Host], command: str, *, timeout: float, concurrency: int
    ) -> Generator[tuple[str, CommandResult | SshError]]:
        return side_by_side(hosts, lambda host: self.run(host, command, timeout=timeout), concurrency=concurrency)

    def attending(self, hosts: Iterable[Host]) -> AbstractContextManager[None]:
        return nullcontext()

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        assert command == PROBE_COMMAND
        with self._lock:
            self.asked.append(host.name)
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            return self.scripts.get(host.name, lambda: ANSWER)()
        finally:
            with self._lock:
                self.now -= 1


def hosts(count: int) -> dict[str, Host]:
    return {f"node-{number}": Host(f"h{number}", f"192.0.2.{number}") for number in range(count)}


def fail(error: BaseException) -> Callable[[], CommandResult]:
    def script() -> CommandResult:
        raise error

    return script


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (HostKeyError("said", hint="do"), ProbeFailureKind.HOST_KEY),
        (SshAuthError("said", hint="do"), ProbeFailureKind.AUTH),
        (SshTimeoutError("said", hint="do"), ProbeFailureKind.TIMEOUT),
        (SshUnreachableError("said", hint="do"), ProbeFailureKind.UNREACHABLE),
        (SshError("said", hint="do"), ProbeFailureKind.GARBLED),
    ],
)
def test_ssh_errors_become_failures(error: SshError, kind: ProbeFailureKind) -> None:
    host = Host("h0", "192.0.2.1")
    assert observe(host, ScriptedShell({"h0": fail(error)}), timeout=1) == ProbeFailure(host, kind, "said", "do")


def test_every_host_gets_exactly_one_observation() -> None:
    shell = ScriptedShell(
        {
            "h3": fail(SshTimeoutError("slow")),
            "h4": fail(RuntimeError("a bug")),
            "h5": lambda: CommandResult(0, "\x00junk", ""),
        }
    )
    told: list[tuple[str, HostObservation]] = []
    found = poll(hosts(20), shell, timeout=1, concurrency=4, on_result=lambda *answer: told.append(answer))
    assert list(found) == list(hosts(20))
    assert sorted(shell.asked) == sorted(host.name for host in hosts(20).values())
    assert dict(told) == found
    assert len(told) == 20
    failures = {name: answer.kind for name, answer in found.items() if isinstance(answer, ProbeFailure)}
    assert failures == {
        "node-3": ProbeFailureKind.TIMEOUT,
        "node-4": ProbeFailureKind.UNREACHABLE,
        "node-5": ProbeFailureKind.GARBLED,
    }
    assert shell.most <= 4


def test_hosts_are_asked_side_by_side() -> None:
    barrier = threading.Barrier(5, timeout=60)

    def together() -> CommandResult:
        barrier.wait()
        return ANSWER

    found = poll(hosts(5), ScriptedShell({f"h{n}": together for n in range(5)}), timeout=1, concurrency=5)
    assert all(isinstance(answer, HostFacts) for answer in found.values())


def test_interrupt_ends_it_at_once() -> None:
    release = threading.Event()

    def hang() -> CommandResult:
        release.wait(100)
        return ANSWER

    def interrupt(_name: str, _answer: HostObservation) -> None:
        raise KeyboardInterrupt

    shell = ScriptedShell({f"h{number}": hang for number in range(1, 50)})
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        poll(hosts(50), shell, timeout=30, concurrency=3, on_result=interrupt)
    assert time.monotonic() - started < 60
    release.set()
    while shell.now:
        time.sleep(0.01)
    assert len(shell.asked) <= 4
