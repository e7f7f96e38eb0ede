"""A run as JSON lines: one object a line, for programs; the first names the version of the format."""

import threading
from collections.abc import Iterable
from datetime import datetime
from typing import IO

from rollout.execution.rollout.rehearsal import Rehearsal
from rollout.model.json_text import json_line
from rollout.model.plan import FORMAT_VERSION
from rollout.model.progress import StepEvent
from rollout.report.lines import AnyLine, DryRunLine, RunRecord, VersionLine, line, record_of


class JsonLines:
    """Writes every event as one line, at once. Safe to call from many threads."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def begin(self, at: datetime) -> None:
        """The first line: the version of this format."""
        self._write(VersionLine(at, FORMAT_VERSION))

    def record(self, record: RunRecord) -> None:
        """What a journal begins with: who keeps these lines has the journal of a process whose files go with it."""
        self._write(record)

    def notify(self, event: StepEvent) -> None:
        """One line for one event."""
        self._write(line(event))

    def rehearsed(self, at: datetime, nodes: Iterable[Rehearsal]) -> None:
        """One line for each node of a dry run."""
        for node in nodes:
            self._write(DryRunLine(at, node.node, node.evictions, node.objections))

    def _write(self, content: AnyLine) -> None:
        text = json_line(record_of(content)).decode() + "\n"
        with self._lock:
            self._stream.write(text)
            self._stream.flush()
