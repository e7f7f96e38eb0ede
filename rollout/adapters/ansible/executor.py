"""Runs commands on hosts through Ansible.

A run of `probe.yml` asks many hosts. Hosts that are being rebooted share a run of `reboot.yml`,
which polls for a numbered file with each command. A run ends when this process is gone.
"""

import hashlib
import json
import math
import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from rollout.adapters.ansible.answers import Answer, host_answer
from rollout.adapters.ansible.inventory import has_safe_names
from rollout.adapters.ansible.playbook_run import PlaybookRun
from rollout.adapters.ansible.settings import AnsibleSettings, playbooks
from rollout.errors import SshError, SshTimeoutError, SshUnreachableError
from rollout.gather.hosts.probe import parse_boot
from rollout.model.host import Host
from rollout.ports import CommandResult

# Each host takes a process of 17 MB.
_MOST_ATTENDED = 200
_BOOT_ID = "/proc/sys/kernel/random/boot_id"

_MOST_TURNS: Final = 20_000
# Ansible's own time for a run: to start, find the command and report its end.
_SLACK_SECONDS: Final = 30.0
_END_SECONDS: Final = 5.0


class AnsibleExecutor:
    """A `HostExecutor`. `RolloutError` without Ansible."""

    def __init__(self, settings: AnsibleSettings) -> None:
        settings.check_configuration()
        self._settings = settings
        self._lock = threading.Lock()
        self._attended: dict[str, CommandQueue] = {}

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        """Run a command in the run of an attended host, else in a new run of about a second.

        After `SshUnreachableError` the command may have run.
        """
        with self._lock:
            queue = self._attended.get(host.name)
        if queue is not None:
            answer = queue.ask(host, command, timeout=timeout)
        else:
            answers = self.run_on_all({host.name: host}, command, timeout=timeout, concurrency=1)
            with closing(answers):
                _name, answer = next(answers)
        if isinstance(answer, SshError):
            raise answer
        return answer

    def run_if(
        self,
        host: Host,
        question: str,
        agreed: Callable[[CommandResult], bool],
        command: str,
        *,
        timeout: float,
    ) -> CommandResult | None:
        """Run `command` if `agreed` accepts the answer to `question`, in the same boot."""
        answer = self.run(host, question, timeout=timeout)
        boot = parse_boot(answer)
        if not agreed(answer) or boot is None:
            return None
        return self.run(host, _only_in_boot(boot.boot_id, command), timeout=timeout)

    def run_on_all(
        self, hosts: Mapping[str, Host], command: str, *, timeout: float, concurrency: int
    ) -> Generator[tuple[str, Answer]]:
        """Run a command on all hosts, in one run of `probe.yml`."""
        # By Ansible's names, which may differ from those in `hosts`.
        waiting: dict[str, str] = {}
        for name, host in hosts.items():
            if has_safe_names(host):
                waiting[host.name] = name
            else:
                why = f"{host.name!r}: this name, address or user cannot be given to ssh"
                yield name, SshError(why)
        if not waiting:
            return
        # None follows the last event.
        events: SimpleQueue[Mapping[str, Any] | None] = SimpleQueue()
        run = PlaybookRun(
            self._settings,
            playbooks() / "probe.yml",
            [hosts[name] for name in waiting.values()],
            forks=min(concurrency, len(waiting)),
            listener=events.put,
            ended=lambda: events.put(None),
        )
        try:
            run.begin({"rollout_question": command, "rollout_seconds": math.ceil(timeout)})
            while waiting:
                event = events.get()
                if event is None:
                    break
                answered = host_answer(event)
                if answered and answered.host in waiting:
                    yield waiting.pop(answered.host), answered.answer
            for _, name in sorted(waiting.items()):
                yield name, SshUnreachableError(f"Ansible gave no response: {run.last_output}")
        finally:
            run.end()

    @contextmanager
    def attending(self, hosts: Iterable[Host]) -> Iterator[None]:
        """Keep one run of `reboot.yml` for at most 200 hosts."""
        attended = [host for host in hosts if has_safe_names(host)][:_MOST_ATTENDED]
        queue = CommandQueue(self._settings, attended)
        with self._lock:
            self._attended.update({host.name: queue for host in attended})
        try:
            yield
        finally:
            with self._lock:
                for host in attended:
                    self._attended.pop(host.name, None)
            queue.close()


def _only_in_boot(boot_id: str, command: str) -> str:
    is_same_boot = f'[ "$(cat {_BOOT_ID})" = {boot_id} ]'
    return f"if {is_same_boot}; then\n{command}\nelse echo 'this is another boot already'; fi"


@dataclass(slots=True)
class _HostCommands:
    folder: Path
    next_turn: int = 0
    answers: "dict[int, Future[Answer]]" = field(default_factory=dict)


class CommandQueue:
    """Gives commands to hosts in one run. For many threads.

    If the run ends early, open commands fail, and the next starts another run.
    """

    def __init__(self, settings: AnsibleSettings, hosts: Sequence[Host]) -> None:
        self._settings = settings
        self._hosts = hosts
        self._lock = threading.Lock()
        self._run: PlaybookRun | None = None
        self._commands: dict[str, _HostCommands] = {}

    def ask(self, host: Host, command: str, *, timeout: float) -> Answer:
        """Return the host's answer to a command."""
        answer: Future[Answer] = Future()
        with self._lock:
            if self._run is None:
                self._run = self._begin_run()
            commands = self._commands[host.name]
            turn = commands.next_turn
            commands.next_turn += 1
            commands.answers[turn] = answer
            _write_command(commands.folder, turn, command, math.ceil(timeout))
        try:
            return answer.result(timeout + _SLACK_SECONDS)
        except TimeoutError:
            # Replaces a command that has not started; one that has may still complete.
            _write_command(commands.folder, turn, "true", 1)
            return SshTimeoutError(f"Ansible gave no response within {timeout:.3g} s")

    def close(self) -> None:
        """End the run."""
        with self._lock:
            run = self._run
            for commands in self._commands.values():
                _write_command(commands.folder, commands.next_turn, "", 1)
                commands.next_turn += 1
        if run is not None and not run.wait(_END_SECONDS):
            run.end()

    def _begin_run(self) -> PlaybookRun:
        run = PlaybookRun(
            self._settings,
            playbooks() / "reboot.yml",
            self._hosts,
            forks=len(self._hosts),
            listener=self._take_event,
            ended=lambda: self._end_run(run),
        )
        turns = run.folder / "turns"
        self._commands = {}
        for host in self._hosts:
            # The playbook builds the same name: a host's own may hold any character.
            digest = hashlib.sha1(host.name.encode(), usedforsecurity=False)
            folder = turns / digest.hexdigest()
            folder.mkdir(parents=True, mode=0o700)
            self._commands[host.name] = _HostCommands(folder)
        run.begin(
            {
                "rollout_turns": str(turns),
                "rollout_process": os.getpid(),
                "rollout_most_turns": _MOST_TURNS,
                "rollout_serial": "100%",
            }
        )
        return run

    def _take_event(self, event: Mapping[str, Any]) -> None:
        answered = host_answer(event)
        if answered is None or answered.turn is None or answered.host not in self._commands:
            return
        with self._lock:
            answer = self._commands[answered.host].answers.pop(answered.turn, None)
        if answer is not None:
            answer.set_result(answered.answer)

    def _end_run(self, run: PlaybookRun) -> None:
        with self._lock:
            self._run = None
            commands = list(self._commands.values())
        for host_commands in commands:
            for answer in host_commands.answers.values():
                answer.set_result(SshUnreachableError(f"Ansible has ended: {run.last_output}"))


def _write_command(folder: Path, turn: int, command: str, timeout: int) -> None:
    """Write a command for the playbook, in one step: it polls the folder."""
    partial = folder / f".{turn}"
    try:
        partial.write_text(json.dumps({"command": command, "seconds": timeout}), encoding="utf-8")
        partial.replace(folder / str(turn))
    except FileNotFoundError:
        # The run has ended and removed its folder.
        return
