"""Work in daemon threads, which the exit of the program does not wait for.

Python joins the threads of an executor at exit, and would wait for an API server or a host that
hangs.
"""

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_background(work: Callable[[], Result], name: str) -> "Future[Result]":
    """Run the work in a thread that the end of the program does not wait for."""
    future: Future[Result] = Future()
    # A coroutine that waits for the future may be canceled. That does not cancel the work.
    future.set_running_or_notify_cancel()
    Thread(target=_fulfill, args=(future, work), name=name, daemon=True).start()
    return future


def side_by_side(
    items: Iterable[Item], work: Callable[[Item], Result], *, most: int, name: str
) -> Generator[tuple[Item, Result]]:
    """Yield each item with its result, the first to finish first; at most `most` run at once.

    An exception of the work is raised here. Closing the generator starts no more work, and does
    not wait for what is running.
    """
    pending = list(items)
    count = len(pending)
    done = SimpleQueue[tuple[Item, Future[Result]]]()
    # All threads share one iterator, so that each item is taken once.
    shared = iter(pending)

    def work_on_items() -> None:
        for item in shared:
            future: Future[Result] = Future()
            _fulfill(future, lambda: work(item))  # noqa: B023 - called at once
            done.put((item, future))

    for _ in range(min(max(1, most), count)):
        Thread(target=work_on_items, name=name, daemon=True).start()
    try:
        for _ in range(count):
            item, future = done.get()
            yield item, future.result()
    finally:
        # Ends the shared iterator, so that no thread takes another item.
        pending.clear()


def _fulfill(future: "Future[Result]", work: Callable[[], Result]) -> None:
    """Give the future the result or the exception of the work."""
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised by the future's result()
        future.set_exception(error)
