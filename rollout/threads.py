"""Work in threads that no exit waits for.

Those of a pool are waited for where it is left, and by the interpreter at its end: who interrupts
the program would have to outwait an API server or a host that hangs.
"""

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

I = TypeVar("I")  # noqa: E741 - an item
T = TypeVar("T")


def in_background(work: Callable[[], T], name: str) -> "Future[T]":
    """Begin it in a thread of its own; what comes of it, as soon as that is known."""
    end: Future[T] = Future()
    # from here on whoever waits for it may be cancelled, and the work may not
    end.set_running_or_notify_cancel()
    Thread(target=_run, args=(work, end), name=name, daemon=True).start()
    return end


def side_by_side(
    items: Iterable[I], work: Callable[[I], T], *, most: int, name: str
) -> Generator[tuple[I, T]]:
    """Each item with what comes of it, as it comes, at most so many at a time; what one raises is raised.

    Closed, it ends at once: no further one is begun, and those under way are not waited for.
    """
    todo = list(items)
    ended = SimpleQueue[tuple[I, Future[T]]]()
    # one iterator of all threads: each takes what none has taken yet
    count = len(todo)
    left = iter(todo)

    def begin() -> None:
        for item in left:
            end: Future[T] = Future()
            _run(lambda: work(item), end)  # noqa: B023 - called at once
            ended.put((item, end))

    for _ in range(min(max(1, most), count)):
        Thread(target=begin, name=name, daemon=True).start()
    try:
        for _ in range(count):
            item, end = ended.get()
            yield item, end.result()
    finally:
        todo.clear()


def _run(work: Callable[[], T], end: "Future[T]") -> None:
    try:
        end.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised where its end is asked for
        end.set_exception(error)
