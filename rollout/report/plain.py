import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import IO, Self

from rollout.model.progress import (
    Activity,
    NodeStep,
    Phase,
    PlanReady,
    PodBlocked,
    PodReleased,
    PodsEvicted,
    RunFinished,
    StepEvent,
)
from rollout.model.timestamps import whole_second
from rollout.report.columns import wrap
from rollout.report.lines import AnyLine
from rollout.report.run_view import RunView
from rollout.report.sentences import progress_text, sentence

# How soon a step or a blocked eviction may have another line.
DETAIL_SECONDS = 30.0
_BLOCKED_SECONDS = 300.0
_QUIET_SECONDS = 60.0
_SECONDS_BETWEEN_CHECKS_FOR_SILENCE = _QUIET_SECONDS / 4
# In place of a pod's name.
_STEP = ""
# The end has its own line.
_SILENT_PHASES = frozenset({Phase.PENDING, Phase.DONE})
_PHASES_WITH_WAITS = frozenset({Phase.CORDONED, Phase.DRAINED})


class LogFilter:
    """Logs repeated steps and blocked evictions only rarely. Not safe for several threads."""

    def __init__(self, *, names_pods: bool = False) -> None:
        self.view = RunView()
        self._names_pods = names_pods
        # By node, and by pod or `_STEP`.
        self._reported_at: dict[tuple[str, str], float] = {}

    def admit(self, event: StepEvent | AnyLine, now: float) -> bool:
        if isinstance(event, PlanReady) and not self.view.in_flight:
            # Each host of a FleetLock server has its own plan.
            self.view = RunView()
        gets_line = True
        match event:
            case NodeStep():
                gets_line = self._admit_step(event, now)
            case PodBlocked():
                gets_line = self._admit_rarely((event.node, event.pod), now, _BLOCKED_SECONDS)
            case PodsEvicted():
                gets_line = self._names_pods
            case PodReleased():
                # Only a pod that was reported as held is reported as released.
                reported_at = self._reported_at.pop((event.node, event.pod), None)
                gets_line = reported_at is not None
            case _:
                pass
        self.view.apply(event, now)
        return gets_line

    def _admit_step(self, event: NodeStep, now: float) -> bool:
        node = self.view.nodes.get(event.node)
        if node is None or node.phase is not event.phase:
            self._reported_at[event.node, _STEP] = now
            return event.phase not in _SILENT_PHASES
        if not event.detail:
            return False
        is_wait = event.phase in _PHASES_WITH_WAITS and event.activity is Activity.WAITING
        is_new_wait = is_wait and node.detail != event.detail
        interval = 0.0 if is_new_wait else DETAIL_SECONDS
        return self._admit_rarely((event.node, _STEP), now, interval)

    def _admit_rarely(self, key: tuple[str, str], now: float, interval: float) -> bool:
        if now - self._reported_at.get(key, float("-inf")) < interval:
            return False
        self._reported_at[key] = now
        return True


class PlainLines:
    """Safe for many threads. As a context, it also writes during silence."""

    def __init__(
        self,
        stream: IO[str],
        monotonic: Callable[[], float] = time.monotonic,
        *,
        names_pods: bool = False,
        with_program_name: Callable[[str], str] = str,
    ) -> None:
        self._stream = stream
        self._with_program_name = with_program_name
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._filter = LogFilter(names_pods=names_pods)
        self._last_line_at = monotonic()
        self._ended = threading.Event()
        self._silence_thread = threading.Thread(
            target=self._write_during_silence, name="plain-lines", daemon=True
        )

    def __enter__(self) -> Self:
        self._silence_thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._silence_thread.join()

    def notify(self, event: StepEvent) -> None:
        with self._lock:
            now = self._monotonic()
            gets_line = self._filter.admit(event, now)
            if isinstance(event, RunFinished):
                self._ended.set()
            if gets_line:
                self._write(event.at, sentence(event), now)

    def _write_during_silence(self) -> None:
        """Some CI systems end silent jobs."""
        while not self._ended.wait(_SECONDS_BETWEEN_CHECKS_FOR_SILENCE):
            # `notify` raises the error if the reader of the pipe is gone.
            with self._lock, suppress(OSError, ValueError):
                now = self._monotonic()
                view = self._filter.view
                is_quiet = now - self._last_line_at >= _QUIET_SECONDS
                if is_quiet and view.planned_count:
                    self._write(datetime.now(UTC), progress_text(view, now), now)

    def _write(self, at: datetime, text: str, now: float) -> None:
        self._last_line_at = now
        self._stream.write(f"{self._with_time(at, self._with_program_name(text))}\n")
        self._stream.flush()

    def _with_time(self, at: datetime, text: str) -> str:
        if not self._stream.isatty():
            return f"{whole_second(at)} {text}"
        # The terminal would break words.
        return wrap(f"{at.astimezone():%H:%M:%S} {text}", shutil.get_terminal_size().columns)
