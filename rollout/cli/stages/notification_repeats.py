from msgspec import Struct
from msgspec.structs import replace

from rollout.model.notification import Note


class RepeatFilter(Struct):
    """Detects a notification that repeats the previous pass's last one."""

    # The last note of each pass, without its time and run.
    previous: Note | None = None
    current: Note | None = None

    def begin_pass(self) -> None:
        self.previous = self.current
        self.current = None

    @property
    def has_notified(self) -> bool:
        return self.current is not None

    def is_repeated(self, note: Note) -> bool:
        return _without_run(note) == self.previous

    def add(self, note: Note) -> None:
        self.current = _without_run(note)


def _without_run(note: Note) -> Note:
    return replace(note, at="", run="")
