"""Every journal that a test's runs write is checked against the transition table and the safety
rules.
"""

from collections.abc import Mapping
from pathlib import Path
from weakref import WeakKeyDictionary

from rollout.adapters.journal import SUFFIX, JournalFile, read_lines
from rollout.report.journal_check import check_journal, violation_text

_PATHS: WeakKeyDictionary[JournalFile, Path] = WeakKeyDictionary()
_WRITTEN: set[Path] = set()
_FOLDERS: set[Path] = set()
# Path, time and size: a journal that has not changed is not checked again.
_CHECKED: set[tuple[Path, int, int]] = set()


def watch_journals() -> None:
    """Have every journal that this process closes checked at the end of its test."""
    begin, close = JournalFile.__init__, JournalFile.close

    def begin_watched(journal: JournalFile, path: Path) -> None:
        begin(journal, path)
        _PATHS[journal] = path.absolute()

    def close_watched(journal: JournalFile) -> None:
        close(journal)
        _WRITTEN.add(_PATHS[journal])

    JournalFile.__init__ = begin_watched  # type: ignore[method-assign, assignment]
    JournalFile.close = close_watched  # type: ignore[method-assign, assignment]


def watch_journals_of(environment: Mapping[str, str]) -> None:
    """Have the journals of a program in another process checked at the end of its test."""
    home = environment.get("HOME", "")
    state = environment.get("XDG_STATE_HOME") or f"{home}/.local/state"
    _FOLDERS.add(Path(state, "rollout", "runs"))


def assert_journals_hold() -> None:
    """Check what was written since the last test."""
    written = _WRITTEN.union(*(folder.glob(f"*{SUFFIX}") for folder in _FOLDERS))
    _WRITTEN.clear()
    _FOLDERS.clear()
    found = [f"{path.name}: {text}" for path in sorted(written) for text in violations(path)]
    assert not found, found


def violations(path: Path) -> list[str]:
    """What is wrong with a journal, one text for each; nothing if it is gone, or no file."""
    if not path.is_file():
        return []
    status = path.stat()
    version = (path, status.st_mtime_ns, status.st_size)
    if version in _CHECKED:
        return []
    _CHECKED.add(version)
    lines = enumerate(read_lines(path), start=1)
    checked = check_journal((number, record) for number, record in lines if record is not None)
    return [f"line {found.line}: {violation_text(found)}" for found in checked.violations]
