"""Many hosts asked at once by threads, for whatever carries one question at a time.

A host that fails, hangs until its deadline or raises something unforeseen costs its own answer and one of the
threads for a while, never another host's answer.
"""

from collections.abc import Callable, Generator, Mapping
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

from rollout.errors import SshError, SshUnreachableError
from rollout.model.host import Host
from rollout.ports import CommandResult

Answer = CommandResult | SshError
_Todo = SimpleQueue[tuple[str, Host]]
T = TypeVar("T")


def side_by_side(
    hosts: Mapping[str, Host], ask: Callable[[Host], T], *, concurrency: int
) -> Generator[tuple[str, T | SshError]]:
    """Each host's answer or failure as it comes, at most `concurrency` asked at a time.

    Closed, it ends at once: no further host is asked, and nobody waits for those being asked.
    """
    todo, answers = _Todo(), SimpleQueue[tuple[str, T | SshError]]()
    for item in hosts.items():
        todo.put(item)
    # Daemons, unlike a pool's: the interpreter would wait for those of a pool at its end.
    for _ in range(min(max(1, concurrency), len(hosts))):
        Thread(target=_work, args=(todo, answers, ask), name="probe", daemon=True).start()
    try:
        for _ in hosts:
            yield answers.get()
    finally:
        while _next(todo) is not None:
            pass


def _work(todo: _Todo, answers: SimpleQueue[tuple[str, T | SshError]], ask: Callable[[Host], T]) -> None:
    while (item := _next(todo)) is not None:
        name, host = item
        answers.put((name, _answer(host, ask)))


def _answer(host: Host, ask: Callable[[Host], T]) -> T | SshError:
    try:
        return ask(host)
    except SshError as error:
        return error
    except Exception as error:  # noqa: BLE001 - one host's surprise must not end the others' questions
        return SshUnreachableError(f"asking it failed: {error!r}", hint="Please report this.")


def _next(todo: _Todo) -> tuple[str, Host] | None:
    try:
        return todo.get_nowait()
    except Empty:
        return None
