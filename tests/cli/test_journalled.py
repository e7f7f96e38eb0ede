"""The journal while many nodes tell of themselves at once."""

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from rollout.adapters.journal import JournalFile, Record
from rollout.cli.stages.observers import _Journalled
from rollout.execution.base.reporting import Observers
from rollout.model.progress import Notice


class SlowDisk:
    def __init__(self) -> None:
        self.is_writing, self.may_go_on, self.written = threading.Event(), threading.Event(), list[str]()

    def write(self, record: Record) -> None:
        if not self.is_writing.is_set():
            self.is_writing.set()
            assert self.may_go_on.wait(10)
        self.written.append(record["message"])


def test_it_is_written_in_the_order_in_which_it_is_told() -> None:
    disk, at = SlowDisk(), datetime(2026, 11, 24, tzinfo=UTC)
    journal = _Journalled(Observers(()), Path("journal"), cast("JournalFile", disk), [], is_held=True)

    def tell(message: str) -> threading.Thread:
        thread = threading.Thread(target=journal.notify, args=(Notice(at, message),), daemon=True)
        thread.start()
        return thread

    first = tell("first")
    assert disk.is_writing.wait(10)
    second = tell("second")
    second.join(0.2)
    assert second.is_alive()
    disk.may_go_on.set()
    for thread in (first, second):
        thread.join(10)
    assert disk.written == ["first", "second"]
