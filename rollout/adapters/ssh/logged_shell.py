"""Logs the name, outcome and duration of each command, which may itself hold a secret."""

import logging
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from functools import partial
from typing import TypeVar

from rollout.errors import SshError
from rollout.gather.hosts.probe import BOOT_COMMAND
from rollout.gather.hosts.probe_command import REBOOT_COMMAND, is_last_question, is_probe
from rollout.gather.updates import CHECK_COMMAND
from rollout.model.host import Host
from rollout.ports import CommandResult, HostExecutor

_LOG = logging.getLogger("rollout.ssh")
_NAMES: Mapping[str, str] = {
    BOOT_COMMAND: "boot ID",
    REBOOT_COMMAND: "reboot",
    CHECK_COMMAND: "check for an update",
}
_REBOOT_COMMAND = "the operator's reboot command"

Answer = CommandResult | SshError
T = TypeVar("T", CommandResult, CommandResult | None)


def logged_shell(shell: HostExecutor) -> HostExecutor:
    """Return a shell with a log, if debug messages are logged."""
    return LoggedShell(shell) if _LOG.isEnabledFor(logging.DEBUG) else shell


class LoggedShell:
    """A `HostExecutor` that logs the commands of another one."""

    def __init__(self, shell: HostExecutor) -> None:
        self.shell = shell
        self.attending = shell.attending

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        """Run a command."""
        ask = partial(self.shell.run, host, command, timeout=timeout)
        return _log_answer(host, _name(command), ask)

    def run_if(
        self,
        host: Host,
        question: str,
        agreed: Callable[[CommandResult], bool],
        command: str,
        *,
        timeout: float,
    ) -> CommandResult | None:
        """Run a question, and perhaps a command."""
        name = f"{_name(question)}, then {_name(command)}"
        shell = self.shell
        ask = partial(shell.run_if, host, question, agreed, command=command, timeout=timeout)
        return _log_answer(host, name, ask)

    def run_on_all(
        self, hosts: Mapping[str, Host], command: str, *, timeout: float, concurrency: int
    ) -> Generator[tuple[str, Answer]]:
        """Run a command on all hosts. Durations count from the start."""
        began = time.monotonic()
        name = _name(command)
        answers = self.shell.run_on_all(hosts, command, timeout=timeout, concurrency=concurrency)
        with closing(answers):
            for node, answer in answers:
                _log(hosts[node], name, answer, began)
                yield node, answer


def _log_answer(host: Host, name: str, ask: Callable[[], T]) -> T:
    began = time.monotonic()
    try:
        answer = ask()
    except SshError as error:
        _log(host, name, error, began)
        raise
    _log(host, name, answer, began)
    return answer


def _name(command: str) -> str:
    if is_probe(command):
        return "probe"
    if is_last_question(command):
        return "boot ID and staged version"
    return _NAMES.get(command, _REBOOT_COMMAND)


def _log(host: Host, name: str, answer: Answer | None, began: float) -> None:
    subject = f"{host.name} ({host.user}@{host.address}:{host.port}): {name}"
    _LOG.debug("%s: %s, %.2fs", subject, _outcome(answer), time.monotonic() - began)


def _outcome(answer: Answer | None) -> str:
    match answer:
        case None:
            return "not sent: the answer to the question forbids it"
        case CommandResult():
            return f"status {answer.exit_status}, {len(answer.stdout)} characters"
        case SshError():
            return f"{type(answer).__name__}: {answer.message}"
