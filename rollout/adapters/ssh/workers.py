"""Many hosts asked by several processes: one interpreter uses one core, however many threads it has.

Each reads a task from its input, writes an answer a host to its output, and ends when its input does: none outlives
the process that began it.
"""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import IO, TypeVar

import msgspec

from rollout import errors
from rollout.adapters.child_environment import child_environment
from rollout.adapters.ssh.connection import Patience
from rollout.errors import SshError
from rollout.gather.hosts.side_by_side import Answer
from rollout.model.host import Host
from rollout.ports import CommandResult

_LOG = logging.getLogger("rollout.ssh")
# Below this, a process takes longer to begin than the hosts to answer.
_HOSTS_A_WORKER = 250
# Each takes some 40 MB.
_MOST_WORKERS = 4
_LENGTH = 4
_PROGRAM = "rollout.adapters.ssh.worker"

M = TypeVar("M")

Asked = Mapping[str, Host]
AskHere = Callable[[Asked], Generator[tuple[str, Answer]]]


@dataclass(frozen=True, slots=True)
class ShellSettings:
    """How a worker logs in. It asks nobody, and records no key."""

    known_hosts: str | None
    key_file: str | None
    passphrases: tuple[str, ...]
    connect_timeout: float
    output_limit: int
    patience: Patience


@dataclass(frozen=True, slots=True)
class Task:
    """What one process is to do."""

    settings: ShellSettings
    hosts: dict[str, Host]
    command: str
    timeout: float
    concurrency: int


@dataclass(frozen=True, slots=True)
class SentAnswer:
    """One host's answer; `error` is the class of a failure, its message and its hint."""

    name: str
    result: CommandResult | None = None
    error: tuple[str, str, str] | None = None


def workers_for(hosts: int) -> int:
    """How many processes it takes to ask so many hosts; 1 is this one."""
    return max(1, min(_cores(), hosts // _HOSTS_A_WORKER, _MOST_WORKERS))


def _cores() -> int:
    # Those that we may use, where the system tells: a container has fewer than its machine.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_processes(
    settings: ShellSettings,
    hosts: Asked,
    command: str,
    *,
    timeout: float,
    concurrency: int,
    workers: int,
    ask_here: AskHere,
) -> Generator[tuple[str, Answer]]:
    """Each host's answer or failure as it comes; `ask_here` asks those whose worker has ended before them.

    Closed, it ends the workers at once.
    """
    shares = [dict(list(hosts.items())[number::workers]) for number in range(workers)]
    at_once = -(-concurrency // workers)
    answers = SimpleQueue[tuple[str, Answer] | None]()
    # Before a process is begun: what cannot be written down is a defect to be told, and no worker's end.
    tasks = [message_of(Task(settings, share, command, timeout, at_once)) for share in shares]
    begun = [_Worker(task, answers) for task in tasks]
    missing = dict(hosts)
    _LOG.info("%d hosts are asked by %d processes", len(hosts), workers)
    try:
        for answer in _until_all_end(answers, workers):
            missing.pop(answer[0])
            yield answer
        if missing:
            _LOG.info("%d hosts are asked again, here: their processes ended before them", len(missing))
            yield from ask_here(missing)
    finally:
        for worker in begun:
            worker.end()


def _until_all_end(answers: SimpleQueue[tuple[str, Answer] | None], workers: int) -> Iterator[tuple[str, Answer]]:
    while workers:
        answer = answers.get()
        if answer is None:
            workers -= 1
        else:
            yield answer


class _Worker:
    """A process with its task, as a message; and a thread that passes its answers on, None is its end."""

    def __init__(self, task: bytes, answers: SimpleQueue[tuple[str, Answer] | None]) -> None:
        # It finds our modules where we found them, and hears of an interrupt from us alone.
        environment = child_environment() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            # -P: no module is taken from the current folder, which may be anybody's.
            [sys.executable, "-P", "-m", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            process_group=0,
        )
        self._answers = answers
        self._thread = threading.Thread(target=self._pass_on, args=(task,), name="worker", daemon=True)
        self._thread.start()

    def _pass_on(self, task: bytes) -> None:
        try:
            _send(_pipe(self._process.stdin), task)
            for message in read_messages(_pipe(self._process.stdout), SentAnswer):
                self._answers.put((message.name, _answer(message)))
        except (OSError, ValueError, msgspec.MsgspecError):
            # It has ended, or been ended: what is missing is asked again, or not wanted.
            pass
        finally:
            self._answers.put(None)

    def end(self) -> None:
        """End it, and wait until it has."""
        self._process.kill()
        self._process.wait()
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                _pipe(pipe).close()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise ValueError("no pipe")
    return pipe


def write_message(pipe: IO[bytes], message: object) -> None:
    """Send one to the other side."""
    _send(pipe, message_of(message))


def message_of(message: object) -> bytes:
    """The message as it crosses: durations as the seconds that they are. `TypeError` for what cannot cross."""
    return msgspec.msgpack.encode(message, enc_hook=_plain)


def _plain(value: object) -> object:
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"{type(value).__name__} cannot be sent to a worker")


def _send(pipe: IO[bytes], body: bytes) -> None:
    pipe.write(len(body).to_bytes(_LENGTH) + body)
    pipe.flush()


def read_messages(pipe: IO[bytes], kind: type[M]) -> Iterator[M]:
    """What the other side sends, until it ends."""
    while len(length := pipe.read(_LENGTH)) == _LENGTH:
        yield msgspec.msgpack.decode(pipe.read(int.from_bytes(length)), type=kind)


def sent_answer(name: str, answer: Answer) -> SentAnswer:
    """An answer as it is sent."""
    if isinstance(answer, SshError):
        known = next(kind for kind in type(answer).__mro__ if getattr(errors, kind.__name__, None) is kind)
        return SentAnswer(name, error=(known.__name__, answer.message, answer.hint))
    return SentAnswer(name, result=answer)


def _answer(message: SentAnswer) -> Answer:
    if message.result is not None:
        return message.result
    kind, text, hint = message.error or ("SshError", "no answer", "")
    error: SshError = getattr(errors, kind)(text, hint=hint)
    return error
