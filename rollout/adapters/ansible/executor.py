"""Run commands on hosts through Ansible, with any connection that an inventory has.

Many hosts are asked by one run of `probe.yml`. Hosts that are attended share one run of
`reboot.yml`, in which each takes the commands that it is given here. Ansible carries commands and
answers, with `raw` only. No playbook decides anything, so the rules for a reboot and its proof are
those of rollout's own SSH.

Each command is a numbered file that the run waits for. Only this process writes them, so a run ends
when this process is gone.
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
from rollout.adapters.ansible.inventory import is_reachable_by_name
from rollout.adapters.ansible.playbook_run import PlaybookRun
from rollout.adapters.ansible.settings import AnsibleSettings, playbooks
from rollout.errors import SshError, SshTimeoutError, SshUnreachableError
from rollout.gather.hosts.probe import parse_boot
from rollout.model.host import Host
from rollout.ports import CommandResult

# Each takes a process of 17 MB.
_MOST_ATTENDED = 200
_BOOT_ID = "/proc/sys/kernel/random/boot_id"

_MOST_TURNS: Final = 20_000
# What Ansible may take beside the command: to start the run, find the command and report its end.
_SLACK_SECONDS: Final = 30.0
_END_SECONDS: Final = 5.0


class AnsibleExecutor:
    """Runs commands on hosts. Safe to use from many threads. `RolloutError` without Ansible."""

    def __init__(self, settings: AnsibleSettings) -> None:
        settings.check_configuration()
        self._settings = settings
        self._lock = threading.Lock()
        self._attended: dict[str, CommandQueue] = {}

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        """Run a command in the run of an attended host, else in a new run, which takes a second.

        Raises:
            SshUnreachableError: no connection, or it broke, perhaps after the command had run.
            SshTimeoutError: no answer within `timeout` seconds.
            SshAuthError: the host refuses user or key.
            HostKeyError: the host's key is unknown, or has changed.
            SshError: Ansible could not run the command.
        """
        with self._lock:
            queue = self._attended.get(host.name)
        if queue is not None:
            answer = queue.ask(host, command, timeout=timeout)
        else:
            with closing(
                self.run_on_all({host.name: host}, command, timeout=timeout, concurrency=1)
            ) as answers:
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
        """Run `question`, then `command` if `agreed` accepts the answer, only in the same boot."""
        answer = self.run(host, question, timeout=timeout)
        boot = parse_boot(answer)
        if not agreed(answer) or boot is None:
            return None
        return self.run(host, _only_in(boot.boot_id, command), timeout=timeout)

    def run_on_all(
        self, hosts: Mapping[str, Host], command: str, *, timeout: float, concurrency: int
    ) -> Generator[tuple[str, Answer]]:
        """Run a command on all hosts, in one run of `probe.yml`."""
        left = {host.name: name for name, host in hosts.items() if is_reachable_by_name(host)}
        for name, host in hosts.items():
            if host.name not in left:
                yield (
                    name,
                    SshError(f"{host.name!r}: this name, address or user cannot be given to ssh"),
                )
        if not left:
            return
        # None comes last.
        events: SimpleQueue[Mapping[str, Any] | None] = SimpleQueue()
        run = PlaybookRun(
            self._settings,
            playbooks() / "probe.yml",
            [hosts[name] for name in left.values()],
            forks=min(concurrency, len(left)),
            listener=events.put,
            ended=lambda: events.put(None),
        )
        try:
            run.begin({"rollout_question": command, "rollout_seconds": math.ceil(timeout)})
            while left and (event := events.get()) is not None:
                if (answered := host_answer(event)) and answered.host in left:
                    yield left.pop(answered.host), answered.answer
            for _, name in sorted(left.items()):
                yield name, SshUnreachableError(f"Ansible gave no answer: {run.last_output}")
        finally:
            run.end()

    @contextmanager
    def attending(self, hosts: Iterable[Host]) -> Iterator[None]:
        """Keep one run of `reboot.yml` for at most 200 hosts, which starts at the first command."""
        attended = [host for host in hosts if is_reachable_by_name(host)][:_MOST_ATTENDED]
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


def _only_in(boot_id: str, command: str) -> str:
    """Return a command that runs only in this boot; `boot_id` has only hex digits and dashes."""
    return (
        f'if [ "$(cat {_BOOT_ID})" = {boot_id} ]; then\n{command}\nelse echo \'this is another'
        " boot already'; fi"
    )


@dataclass(slots=True)
class _Place:
    """One host's place in a run: the folder of its turns, the number of the next, and who waits for an answer."""

    folder: Path
    turn: int = 0
    waiting: "dict[int, Future[Answer]]" = field(default_factory=dict)


class CommandQueue:
    """What the hosts are asked; safe to call from many threads. The run begins with the first question.

    A run that ends before its time fails the questions of that moment; the next question begins
    another.
    """

    def __init__(self, settings: AnsibleSettings, hosts: Sequence[Host]) -> None:
        self._settings = settings
        self._hosts = hosts
        self._lock = threading.Lock()
        self._run: PlaybookRun | None = None
        self._places: dict[str, _Place] = {}

    def ask(self, host: Host, command: str, *, timeout: float) -> Answer:
        """Give the host a command, and return its answer."""
        waiting: Future[Answer] = Future()
        with self._lock:
            if self._run is None:
                self._run = self._begin_run()
            place = self._places[host.name]
            turn, place.turn = place.turn, place.turn + 1
            place.waiting[turn] = waiting
            _write_batch(place.folder, turn, command, math.ceil(timeout))
        try:
            return waiting.result(timeout + _SLACK_SECONDS)
        except TimeoutError:
            # A command that has not started is replaced. One that has started may still complete.
            _write_batch(place.folder, turn, "true", 1)
            return SshTimeoutError(f"Ansible gave no answer within {timeout:.3g} s")

    def close(self) -> None:
        """Tell every host that there are no more commands, and end the run."""
        with self._lock:
            run = self._run
            for place in self._places.values():
                _write_batch(place.folder, place.turn, "", 1)
                place.turn += 1
        if run is not None and not run.wait(_END_SECONDS):
            run.end()

    def _begin_run(self) -> PlaybookRun:
        hosts = self._hosts
        playbook = playbooks() / "reboot.yml"
        run = PlaybookRun(
            self._settings,
            playbook,
            hosts,
            forks=len(hosts),
            listener=self._take_event,
            ended=lambda: self._end_run(run),
        )
        turns = run.folder / "turns"
        # The playbook builds the same folder name, because a host's name may hold any character.
        digests = {
            host.name: hashlib.sha1(host.name.encode(), usedforsecurity=False) for host in hosts
        }
        self._places = {
            name: _Place(turns / digest.hexdigest()) for name, digest in digests.items()
        }
        for place in self._places.values():
            place.folder.mkdir(parents=True, mode=0o700)
        variables = {
            "rollout_turns": str(turns),
            "rollout_process": os.getpid(),
            "rollout_most_turns": _MOST_TURNS,
        }
        run.begin({**variables, "rollout_serial": "100%"})
        return run

    def _take_event(self, event: Mapping[str, Any]) -> None:
        answer = host_answer(event)
        if answer is None or answer.turn is None or answer.host not in self._places:
            return
        with self._lock:
            waiting = self._places[answer.host].waiting.pop(answer.turn, None)
        if waiting is not None:
            waiting.set_result(answer.answer)

    def _end_run(self, run: PlaybookRun) -> None:
        with self._lock:
            self._run = None
            left = [future for place in self._places.values() for future in place.waiting.values()]
        for future in left:
            future.set_result(SshUnreachableError(f"Ansible has ended: {run.last_output}"))


def _write_batch(folder: Path, turn: int, command: str, seconds: int) -> None:
    """Write a turn down, whole or not at all."""
    written = folder / f".{turn}"
    try:
        written.write_text(json.dumps({"command": command, "seconds": seconds}), encoding="utf-8")
        written.replace(folder / str(turn))
    except FileNotFoundError:
        # The run has ended and removed its folder.
        return
