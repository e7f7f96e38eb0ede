"""Runs commands on hosts through Ansible.

Hosts in a reboot share a run of `reboot.yml`, which polls a folder for numbered commands.
"""

import hashlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from rollout.adapters.ansible.answers import parse_event
from rollout.adapters.ansible.inventory import has_safe_names
from rollout.adapters.ansible.playbook_run import PlaybookRun
from rollout.adapters.ansible.settings import AnsibleSettings, find_playbooks
from rollout.errors import SshError, SshTimeoutError, SshUnreachableError
from rollout.gather.hosts.polling import Answer
from rollout.gather.hosts.probe import parse_boot
from rollout.model.host import Host
from rollout.ports import CommandResult

# Each takes 17 MB.
_MOST_HOSTS_OF_QUEUE = 200
_BOOT_ID = "/proc/sys/kernel/random/boot_id"

_MOST_COMMANDS: Final = 20_000
_SLACK_SECONDS: Final = 30.0
_END_SECONDS: Final = 5.0
# A dynamic inventory and a vault have no timeout.
_LOADING_SECONDS: Final = 300.0
_END_OF_COMMANDS: Final = ""
_TASK_START: Final = "playbook_on_task_start"

# None follows the last event.
_Events = SimpleQueue[Mapping[str, Any] | None]


class AnsibleExecutor:
    """A `HostExecutor` through Ansible."""

    def __init__(self, settings: AnsibleSettings) -> None:
        """Raise `RolloutError` without Ansible."""
        settings.check_configuration()
        self._settings = settings
        self._lock = threading.Lock()
        # By Ansible's host name.
        self._queues: dict[str, _CommandQueue] = {}

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        """After `SshUnreachableError`, the command may have run."""
        with self._lock:
            queue = self._queues.get(host.name)
        try:
            if queue is not None:
                answer = queue.ask(host, command, timeout=timeout)
            else:
                answer = self._run_alone(host, command, timeout)
        except OSError as error:
            message = f"cannot write the command for Ansible: {error.strerror}"
            raise SshUnreachableError(message) from error
        if isinstance(answer, SshError):
            raise answer
        return answer

    def _run_alone(self, host: Host, command: str, timeout: float) -> Answer:
        answers = self.run_on_all({host.name: host}, command, timeout=timeout, concurrency=1)
        with closing(answers):
            _name, answer = next(answers)
        return answer

    def run_if(
        self,
        host: Host,
        question: str,
        accepts: Callable[[CommandResult], bool],
        command: str,
        *,
        timeout: float,
    ) -> CommandResult | None:
        """Run `command` in the boot whose answer to `question` is accepted.

        After a reboot in between, the result is a success that says only that.
        """
        answer = self.run(host, question, timeout=timeout)
        boot = parse_boot(answer)
        if not accepts(answer) or boot is None:
            return None
        try:
            return self.run(host, _only_in_boot(boot.boot_id, command), timeout=timeout)
        except SshTimeoutError as error:
            # The command may not have arrived: it has its own connection.
            raise SshUnreachableError(error.message, hint=error.hint) from error

    def run_on_all(
        self, hosts: Mapping[str, Host], command: str, *, timeout: float, concurrency: int
    ) -> Generator[tuple[str, Answer]]:
        """Run on all hosts with safe names in one run of `probe.yml`."""
        safe_hosts = dict[str, Host]()
        for node, host in hosts.items():
            if has_safe_names(host):
                safe_hosts[node] = host
                continue
            message = f"{host.name!r}: ssh does not accept this name, address or user"
            yield node, SshError(message)
        if safe_hosts:
            yield from self._run_probe(safe_hosts, command, timeout, concurrency)

    def _run_probe(
        self, hosts: Mapping[str, Host], command: str, timeout: float, concurrency: int
    ) -> Generator[tuple[str, Answer]]:
        unanswered = {host.name: node for node, host in hosts.items()}
        forks = min(concurrency, len(unanswered))
        rounds = math.ceil(len(unanswered) / forks)
        limit = rounds * timeout + _LOADING_SECONDS
        events: _Events = SimpleQueue()
        run = PlaybookRun(
            self._settings,
            find_playbooks() / "probe.yml",
            [hosts[node] for node in unanswered.values()],
            forks=forks,
            listener=events.put,
            on_end=lambda: events.put(None),
        )
        try:
            run.start(
                {"rollout_probe_command": command, "rollout_timeout_seconds": math.ceil(timeout)}
            )
            deadline = time.monotonic() + limit
            ended_early = yield from _take_answers(unanswered, events, deadline)
            reason = run.last_output if ended_early else f"it did not finish within {limit:.0f} s"
            for _, node in sorted(unanswered.items()):
                yield node, SshUnreachableError(f"Ansible did not respond: {reason}")
        finally:
            run.cancel()

    @contextmanager
    def attending(self, hosts: Iterable[Host]) -> Iterator[None]:
        """Share a run of `reboot.yml`, which the first command starts.

        Beyond 200 hosts, or with unsafe names, each command has its own run.
        """
        attended = [host for host in hosts if has_safe_names(host)][:_MOST_HOSTS_OF_QUEUE]
        queue = _CommandQueue(self._settings, attended)
        with self._lock:
            self._queues.update({host.name: queue for host in attended})
        try:
            yield
        finally:
            with self._lock:
                for host in attended:
                    self._queues.pop(host.name, None)
            queue.close()


def _take_answers(
    unanswered: dict[str, str], events: _Events, deadline: float
) -> Generator[tuple[str, Answer], None, bool]:
    """Yield answers by node; remove them from `unanswered`.

    Returns whether the run ended early.
    """
    while unanswered:
        try:
            event = events.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            return False
        if event is None:
            return True
        host_answer = parse_event(event)
        if host_answer and host_answer.host in unanswered:
            node = unanswered.pop(host_answer.host)
            yield node, host_answer.answer
    return False


def _only_in_boot(boot_id: str, command: str) -> str:
    is_same_boot = f'[ "$(cat {_BOOT_ID})" = {boot_id} ]'
    return f"if {is_same_boot}; then\n{command}\nelse echo 'this is another boot already'; fi"


@dataclass(slots=True)
class _HostCommands:
    folder: Path
    next_number: int = 0
    # By command number.
    answers: "dict[int, Future[Answer]]" = field(default_factory=dict)


class _CommandQueue:
    """Gives commands from many threads to one run of `reboot.yml`.

    If the run ends early, its commands fail.
    """

    def __init__(self, settings: AnsibleSettings, hosts: Sequence[Host]) -> None:
        self._settings = settings
        self._hosts = hosts
        self._lock = threading.Lock()
        self._run: PlaybookRun | None = None
        # Set at the first task, or the end.
        self._is_loaded = threading.Event()
        self._commands: dict[str, _HostCommands] = {}

    def ask(self, host: Host, command: str, *, timeout: float) -> Answer:
        """`timeout` starts once the inventory is loaded."""
        answer: Future[Answer] = Future()
        with self._lock:
            if self._run is None:
                self._run = self._start_run()
            commands = self._commands[host.name]
            number = commands.next_number
            _write_command(commands.folder, number, command, seconds=math.ceil(timeout))
            # The playbook would wait for a missing file.
            commands.next_number += 1
            commands.answers[number] = answer
            is_loaded = self._is_loaded
        is_loaded.wait(_LOADING_SECONDS)
        try:
            return answer.result(timeout + _SLACK_SECONDS)
        except TimeoutError:
            # Replaces the command, if it has not started.
            _write_command(commands.folder, number, "true")
            return SshTimeoutError(f"Ansible did not respond within {timeout:.3g} s")

    def close(self) -> None:
        with self._lock:
            run = self._run
            for commands in self._commands.values():
                _write_command(commands.folder, commands.next_number, _END_OF_COMMANDS)
                commands.next_number += 1
        if run is not None and not run.wait(_END_SECONDS):
            run.cancel()

    def _start_run(self) -> PlaybookRun:
        """The caller holds the lock."""
        run = PlaybookRun(
            self._settings,
            find_playbooks() / "reboot.yml",
            self._hosts,
            forks=len(self._hosts),
            listener=self._on_event,
            on_end=lambda: self._on_end(run),
        )
        self._is_loaded = threading.Event()
        commands_folder = run.folder / "commands"
        try:
            self._commands = self._make_folders(commands_folder)
            run.start(
                {
                    "rollout_commands_folder": str(commands_folder),
                    # So that the playbook ends with this process.
                    "rollout_process": os.getpid(),
                    "rollout_max_commands": _MOST_COMMANDS,
                    "rollout_serial": "100%",
                }
            )
        except BaseException:
            run.cancel()
            raise
        return run

    def _make_folders(self, parent: Path) -> dict[str, _HostCommands]:
        commands = dict[str, _HostCommands]()
        for host in self._hosts:
            # The playbook uses the same digest, because names may have slashes.
            digest = hashlib.sha1(host.name.encode(), usedforsecurity=False)
            folder = parent / digest.hexdigest()
            folder.mkdir(parents=True, mode=0o700)
            commands[host.name] = _HostCommands(folder)
        return commands

    def _on_event(self, event: Mapping[str, Any]) -> None:
        if event.get("event") == _TASK_START:
            self._is_loaded.set()
        host_answer = parse_event(event)
        if host_answer is None or host_answer.command_number is None:
            return
        if host_answer.host not in self._commands:
            return
        with self._lock:
            awaited_answers = self._commands[host_answer.host].answers
            future = awaited_answers.pop(host_answer.command_number, None)
        if future is not None:
            future.set_result(host_answer.answer)

    def _on_end(self, run: PlaybookRun) -> None:
        with self._lock:
            self._run = None
            self._is_loaded.set()
            commands = list(self._commands.values())
        for host_commands in commands:
            for answer in host_commands.answers.values():
                answer.set_result(SshUnreachableError(f"Ansible exited: {run.last_output}"))


def _write_command(folder: Path, number: int, command: str, *, seconds: int = 1) -> None:
    """Write in one step, because the playbook polls."""
    incomplete_file = folder / f".{number}"
    content = json.dumps({"command": command, "seconds": seconds})
    with suppress(FileNotFoundError):
        incomplete_file.write_text(content, encoding="utf-8")
        incomplete_file.replace(folder / str(number))
