"""Work in daemon threads, which the program's exit does not wait for.

It would wait for an executor's threads, and so for a server or host that hangs.
"""

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_background(work: Callable[[], Result], name: str) -> "Future[Result]":
    future: Future[Result] = Future()
    # Canceling a waiting coroutine must not cancel the work.
    future.set_running_or_notify_cancel()
    Thread(target=_fulfill, args=(future, work), name=name, daemon=True).start()
    return future


def side_by_side(
    items: Iterable[Item], work: Callable[[Item], Result], *, most: int, name: str
) -> Generator[tuple[Item, Result]]:
    """Yield results as they arrive; at most `most` run at once.

    Raises what the work raises. Closing the generator starts no more work, and waits for none.
    """
    pending = list(items)
    count = len(pending)
    done = SimpleQueue[tuple[Item, Future[Result]]]()
    # Threads share it, so each item is taken once.
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
        # This ends the shared iterator, too.
        pending.clear()


def _fulfill(future: "Future[Result]", work: Callable[[], Result]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised by the future's result()
        future.set_exception(error)
