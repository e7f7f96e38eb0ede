"""Logs commands by name: a command may hold a secret."""

import logging
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from typing import TypeVar

from rollout.errors import SshError
from rollout.gather.hosts.polling import Answer
from rollout.gather.hosts.probe import BOOT_COMMAND
from rollout.gather.hosts.probe_command import REBOOT_COMMAND, is_last_question, is_probe
from rollout.gather.hosts.rollback_command import BOOT_RUNNING_COMMAND, is_rollback
from rollout.gather.updates import CHECK_COMMAND
from rollout.model.host import Host
from rollout.ports import CommandResult, HostExecutor

_LOG = logging.getLogger("rollout.ssh")
_NAMES: Mapping[str, str] = {
    BOOT_COMMAND: "boot ID",
    REBOOT_COMMAND: "reboot",
    BOOT_RUNNING_COMMAND: "undo the rollback",
    CHECK_COMMAND: "check for an update",
}
_OTHER_COMMAND = "the operator's reboot command"

T = TypeVar("T", CommandResult, CommandResult | None)


def logged_shell(shell: HostExecutor) -> HostExecutor:
    """Return `shell` itself unless debug messages are on."""
    return LoggedShell(shell) if _LOG.isEnabledFor(logging.DEBUG) else shell


class LoggedShell:
    """Logs another `HostExecutor`'s commands."""

    def __init__(self, shell: HostExecutor) -> None:
        self._shell = shell
        self.attending = shell.attending

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        """Run a command."""
        return _run_and_log(
            host, _name_of(command), lambda: self._shell.run(host, command, timeout=timeout)
        )

    def run_if(
        self,
        host: Host,
        question: str,
        accepts: Callable[[CommandResult], bool],
        command: str,
        *,
        timeout: float,
    ) -> CommandResult | None:
        """Run `command` if the answer is accepted."""
        return _run_and_log(
            host,
            f"{_name_of(question)}, then {_name_of(command)}",
            lambda: self._shell.run_if(host, question, accepts, command, timeout=timeout),
        )

    def run_on_all(
        self, hosts: Mapping[str, Host], command: str, *, timeout: float, concurrency: int
    ) -> Generator[tuple[str, Answer]]:
        """Each duration counts from the start of all."""
        started = time.monotonic()
        name = _name_of(command)
        answers = self._shell.run_on_all(hosts, command, timeout=timeout, concurrency=concurrency)
        with closing(answers):
            for node, answer in answers:
                _log(hosts[node], name, answer, started)
                yield node, answer


def _run_and_log(host: Host, name: str, run: Callable[[], T]) -> T:
    started = time.monotonic()
    try:
        answer = run()
    except Exception as error:
        _log(host, name, error, started)
        raise
    _log(host, name, answer, started)
    return answer


def _name_of(command: str) -> str:
    if is_probe(command):
        return "probe"
    if is_last_question(command):
        return "boot ID and staged version"
    if is_rollback(command):
        return "rollback and reboot"
    return _NAMES.get(command, _OTHER_COMMAND)


def _log(host: Host, name: str, answer: CommandResult | Exception | None, started: float) -> None:
    subject = f"{host.name} ({host.user}@{host.address}:{host.port}): {name}"
    _LOG.debug("%s: %s, %.2fs", subject, _outcome(answer), time.monotonic() - started)


def _outcome(answer: CommandResult | Exception | None) -> str:
    match answer:
        case None:
            return "not sent: the answer to the question forbids it"
        case CommandResult():
            return f"status {answer.exit_status}, {len(answer.stdout)} characters"
        case SshError():
            return f"{type(answer).__name__}: {answer.message}"
        case Exception():
            return f"stopped by {type(answer).__name__}"
