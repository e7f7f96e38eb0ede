"""What the hosts of one Ansible run are asked: one command after another, each a turn of its own.

A turn is a file that the run waits for. It is written whole or not at all, and by this process alone: once that is
gone, whatever runs finds no further turn, and ends.
"""

import hashlib
import json
import math
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTimeError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rollout.adapters.ansible.answers import Answer, host_answer
from rollout.adapters.ansible.playbook_run import PlaybookRun
from rollout.adapters.ansible.settings import AnsibleSettings, playbooks
from rollout.errors import SshError, SshTimeoutError, SshUnreachableError
from rollout.model.host import Host
from rollout.ports import CommandResult

_MOST_TURNS: Final = 20_000
# What Ansible may take around a command: to begin its run, to take up a turn, to tell of its end.
_SLACK_SECONDS: Final = 30.0
_END_SECONDS: Final = 5.0


@dataclass(slots=True)
class _Place:
    """One host's place in a run: the folder of its turns, the number of the next, and who waits for an answer."""

    folder: Path
    turn: int = 0
    waiting: "dict[int, Future[Answer]]" = field(default_factory=dict)


class CommandQueue:
    """What the hosts are asked; safe to call from many threads. The run begins with the first question.

    A run that ends before its time fails the questions of that moment; the next question begins another.
    """

    def __init__(self, settings: AnsibleSettings, hosts: Sequence[Host]) -> None:
        self._settings = settings
        self._hosts = hosts
        self._lock = threading.Lock()
        self._run: _QueueRun | None = None

    def ask(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        """Return the answer to the host's next turn; raise `SshError` or one of its subclasses."""
        with self._lock:
            if self._run is None or self._run.over:
                self._run = _QueueRun(self._settings, self._hosts)
        return self._run.ask(host, command, timeout)

    def close(self) -> None:
        """No further turn for anybody: the run ends by itself, or is ended."""
        with self._lock:
            if self._run is not None:
                self._run.close()


class _QueueRun:
    """One Ansible run, and its hosts' places."""

    def __init__(self, settings: AnsibleSettings, hosts: Sequence[Host]) -> None:
        self._lock = threading.Lock()
        self.over = False
        self._run = PlaybookRun(
            settings, playbooks() / "reboot.yml", hosts, forks=len(hosts), listener=self._heard, ended=self._ended
        )
        turns = self._run.folder / "turns"
        self._places = {host.name: _Place(turns / _file_name(host)) for host in hosts}
        for place in self._places.values():
            place.folder.mkdir(parents=True, mode=0o700)
        variables = {"rollout_turns": str(turns), "rollout_process": os.getpid(), "rollout_most_turns": _MOST_TURNS}
        self._run.begin({**variables, "rollout_serial": "100%"})

    def ask(self, host: Host, command: str, timeout: float) -> CommandResult:
        place = self._places[host.name]
        turn, waiting = self._write(place, command, math.ceil(timeout))
        try:
            answer = waiting.result(timeout + _SLACK_SECONDS)
        except NotInTimeError as error:
            # Not taken up yet, it never is; what is under way already may still be carried out.
            _put(place.folder, turn, "true", 1)
            raise SshTimeoutError(f"Ansible gave no answer within {timeout:.3g} s") from error
        if isinstance(answer, SshError):
            raise answer
        return answer

    def close(self) -> None:
        with self._lock:
            for place in self._places.values():
                _put(place.folder, place.turn, "", 1)
                place.turn += 1
        if not self._run.wait(_END_SECONDS):
            self._run.end()

    def _write(self, place: _Place, command: str, seconds: int) -> "tuple[int, Future[Answer]]":
        waiting: Future[Answer] = Future()
        with self._lock:
            if self.over:
                raise SshUnreachableError(f"Ansible has ended: {self._run.last_output}")
            turn, place.turn = place.turn, place.turn + 1
            place.waiting[turn] = waiting
            _put(place.folder, turn, command, seconds)
        return turn, waiting

    def _heard(self, event: Mapping[str, Any]) -> None:
        answer = host_answer(event)
        if answer is None or answer.turn is None or answer.host not in self._places:
            return
        with self._lock:
            waiting = self._places[answer.host].waiting.pop(answer.turn, None)
        if waiting is not None:
            waiting.set_result(answer.answer)

    def _ended(self) -> None:
        with self._lock:
            self.over = True
            left = [future for place in self._places.values() for future in place.waiting.values()]
        for future in left:
            future.set_result(SshUnreachableError(f"Ansible has ended: {self._run.last_output}"))


def _file_name(host: Host) -> str:
    """As the playbook makes it of the host's name, which may hold anything."""
    return hashlib.sha1(host.name.encode(), usedforsecurity=False).hexdigest()


def _put(folder: Path, turn: int, command: str, seconds: int) -> None:
    """Write a turn down, whole or not at all."""
    written = folder / f".{turn}"
    try:
        written.write_text(json.dumps({"command": command, "seconds": seconds}), encoding="utf-8")
        written.replace(folder / str(turn))
    except FileNotFoundError:
        # The run has ended, and its folder with it: nobody waits for turns any more.
        return
