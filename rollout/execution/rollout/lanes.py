"""The nodes of a wave that are under way, each in a thread of its own."""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Protocol, Self

from rollout.model.plan import PlannedNode
from rollout.model.progress import NodeResult


class Lanes(Protocol):
    """Takes nodes through their runs. Leaving it waits for those under way."""

    @property
    def nodes(self) -> frozenset[str]:
        """Those under way."""
        ...

    def begin(self, node: PlannedNode) -> None:
        """Begin one."""
        ...

    def ended(self, seconds: float | None) -> Sequence[NodeResult]:
        """Those that have ended, as soon as one has; none after so many seconds. None waits for as long as it takes."""
        ...

    def __enter__(self) -> Self:
        """Nothing is under way."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wait for those that are."""
        ...


class ThreadLanes:
    """A thread a node."""

    def __init__(self, run_one: Callable[[PlannedNode], NodeResult], most: int) -> None:
        self._run_one = run_one
        self._pool = ThreadPoolExecutor(max_workers=most, thread_name_prefix="node")
        self._running: dict[Future[NodeResult], str] = {}

    @property
    def nodes(self) -> frozenset[str]:
        """Those under way."""
        return frozenset(self._running.values())

    def begin(self, node: PlannedNode) -> None:
        """Begin one."""
        self._running[self._pool.submit(self._run_one, node)] = node.name

    def ended(self, seconds: float | None) -> Sequence[NodeResult]:
        """Those that have ended, as soon as one has."""
        done, _ = wait(self._running, timeout=seconds, return_when=FIRST_COMPLETED)
        for future in done:
            del self._running[future]
        return [future.result() for future in done]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True)
