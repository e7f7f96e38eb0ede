import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rollout.adapters import journal
from rollout.adapters.web import WebPage
from rollout.cli import wiring
from rollout.cli.settings.schema import Settings
from rollout.cli.stages.journals import read_recorded_run
from rollout.errors import InputError
from rollout.execution.base.cached_value import CachedValue
from rollout.model.text import is_run_id
from rollout.report.history import COLUMNS, history_row
from rollout.report.runs.model import Ending, RunReport
from rollout.report.runs.pages import LivePageFrame, PastRun, live_page

_LATEST = "/"
_RUNS = "/runs/"
# More or larger journals take too long to read.
_MOST_RUNS = 20
_LARGEST_JOURNAL = 16_000_000
_MOST_PAGES = 2 * _MOST_RUNS
_READING_SECONDS = 1.0
# The rollout comes first.
_SHARE = 0.1
_FRESH_SECONDS = 1.0
# Ended runs do not change.
_FRESH_SECONDS_OF_PAST = 60.0
_REFRESH_SECONDS = 5
_REFRESH_SECONDS_AT_REST = 30
_HEADINGS = tuple(column.title.capitalize() for column in COLUMNS)


class _FileState(NamedTuple):
    """Tells whether a journal has changed. All zero if unreadable."""

    modified_ns: int
    size: int


class _CachedRow(NamedTuple):
    journal: _FileState
    row: PastRun


@dataclass(slots=True)
class RunPages:
    """Web pages of runs: the latest at `/`, and others at `/runs/ID`.

    A page is made for one request at a time, in at most a given share of the time, and cached.
    """

    settings: Settings
    # About the rollout in the cluster; empty if it was not read.
    status: Callable[[], str] = str
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _pages: dict[str, CachedValue[WebPage | None]] = field(default_factory=dict)
    _rows: dict[Path, _CachedRow] = field(default_factory=dict)
    # By run ID, the latest first.
    _journals: CachedValue[Mapping[str, Path]] = field(init=False)

    def __post_init__(self) -> None:
        clock = wiring.system_clock()
        self._journals = CachedValue(self._list_journals, _FRESH_SECONDS, clock, share=_SHARE)

    def page(self, path: str, *, refreshes: bool) -> WebPage | None:
        with self._mutex:
            if path == _LATEST:
                make_latest = partial(self._latest_page, refreshes=refreshes)
                return self._make_or_reuse(
                    f"{path} {refreshes}", make_latest, _FRESH_SECONDS, _SHARE
                )
            if not path.startswith(_RUNS):
                return None
            run_id = path.removeprefix(_RUNS)
            journals = self._journals.get()
            file = journals.get(run_id)
            if file is None:
                return None
            make_past = partial(self._past_page, file)
            latest_id = next(iter(journals))
            if run_id == latest_id:
                # It may still be running, so it is cached only briefly.
                return self._make_or_reuse(f"{path} latest", make_past, _FRESH_SECONDS, _SHARE)
            share_of_past = _SHARE / _MOST_RUNS
            return self._make_or_reuse(path, make_past, _FRESH_SECONDS_OF_PAST, share_of_past)

    def _make_or_reuse(
        self, key: str, make: Callable[[], WebPage | None], seconds: float, share: float
    ) -> WebPage | None:
        cached_page = self._pages.pop(key, None)
        if cached_page is None:
            cached_page = CachedValue(make, seconds, wiring.system_clock(), share=share)
        self._pages[key] = cached_page
        while len(self._pages) > _MOST_PAGES:
            least_recently_used = next(iter(self._pages))
            self._pages.pop(least_recently_used)
        return cached_page.get()

    def _latest_page(self, *, refreshes: bool) -> WebPage:
        journals = self._journals.get()
        latest = next(iter(journals.values()), None)
        report = self._read_and_cache(latest) if latest else None
        status = self.status()
        is_running = report is not None and report.ending is Ending.RUNNING
        may_change_soon = is_running or bool(status)
        seconds = _REFRESH_SECONDS if may_change_soon else _REFRESH_SECONDS_AT_REST
        frame = LivePageFrame(
            at=wiring.now(),
            status=status.splitlines(),
            headings=_HEADINGS,
            history=self._history(journals, latest),
            refresh=seconds if refreshes else 0,
            is_latest=True,
        )
        return _web_page(report, frame)

    def _past_page(self, file: Path) -> WebPage | None:
        report = self._read_and_cache(file)
        if report is None:
            return None
        frame = LivePageFrame(
            at=wiring.now(),
            status=(),
            headings=_HEADINGS,
            history=self._history(self._journals.get(), file),
            refresh=0,
            is_latest=False,
        )
        return _web_page(report, frame)

    def _list_journals(self) -> Mapping[str, Path]:
        # Its name need not be a run's.
        own = self.settings.output.journal
        files = journal.latest_first(journal.list_journals())[:_MOST_RUNS]
        if own is not None and own.is_file():
            files = [own, *files]
        return {file.stem: file for file in files if is_run_id(file.stem) or file == own}

    def _history(self, journals: Mapping[str, Path], current: Path | None) -> Sequence[PastRun]:
        """Without time to read a run, its row has only its name.

        The `current` journal has just been read, so its cached row is up to date.
        """
        clock = wiring.system_clock()
        began = clock.monotonic()
        self._rows = {file: self._rows[file] for file in journals.values() if file in self._rows}
        rows = list[PastRun]()
        for run_id, file in journals.items():
            cached = self._rows.get(file)
            needs_reading = cached is None or (
                file != current and cached.journal != _read_state(file)
            )
            has_time = clock.monotonic() - began < _READING_SECONDS
            if needs_reading and has_time:
                self._read_and_cache(file)
                cached = self._rows[file]
            rows.append(cached.row if cached else _unread_row(run_id))
        return rows

    def _read_and_cache(self, file: Path) -> RunReport | None:
        state = _read_state(file)
        is_too_large = state.size > _LARGEST_JOURNAL
        report = None if is_too_large else _read_report(file)
        row = _unread_row(file.stem)
        if report is not None:
            run_id = file.stem if is_run_id(file.stem) else ""
            row = PastRun(run_id, history_row(report, shows_cluster=True))
        self._rows[file] = _CachedRow(state, row)
        return report


def _web_page(report: RunReport | None, frame: LivePageFrame) -> WebPage:
    page = live_page(report, frame)
    return WebPage(page.html, page.csp, frame.refresh)


def _read_state(file: Path) -> _FileState:
    try:
        stat = file.stat()
    except OSError:
        return _FileState(0, 0)
    return _FileState(stat.st_mtime_ns, stat.st_size)


def _unread_row(run_id: str) -> PastRun:
    blanks = [""] * (len(_HEADINGS) - 2)
    # A run with an empty ID has no page.
    return PastRun("", (run_id, *blanks, f"see: rollout report {run_id}"))


def _read_report(file: Path) -> RunReport | None:
    try:
        return read_recorded_run(file).run
    except InputError:
        return None
