"""The slots as this server knows them: read as rarely as answers allow, changed by compare and swap alone."""

import threading
from collections.abc import Callable

from rollout.errors import ApiError
from rollout.execution.record.rewriting import change_slots
from rollout.gather.cluster.slots import read_slots
from rollout.model.fleetlock import NO_SLOTS, Slots
from rollout.ports import Clock, ClusterApi


class SlotBook:
    """For many threads at once. Raises `ApiError` where the slots cannot be read, written or understood."""

    def __init__(self, api: ClusterApi, clock: Clock, namespace: str) -> None:
        self._api = api
        self._clock = clock
        self._namespace = namespace
        self._turn = threading.Lock()
        self._seen = NO_SLOTS
        self._seen_at = float("-inf")
        self._problem = "the slots have not been read yet"

    def seen(self, age: float) -> Slots:
        """As they stood at most `age` seconds ago: good for saying no, never for a yes."""
        with self._turn:
            if self._clock.monotonic() - self._seen_at <= age:
                return self._seen
        return self.read()

    @property
    def latest(self) -> Slots:
        """As they were seen last, however long ago."""
        with self._turn:
            return self._seen

    def read(self) -> Slots:
        """As they stand now."""
        began = self._clock.monotonic()
        try:
            slots = read_slots(self._api, self._namespace).slots
        except ApiError as error:
            self._problem = error.message
            raise
        self._problem = ""
        return self._keep(slots, began)

    def why_unread(self, age: float) -> str:
        """Why the last look at them failed, or that there was none for `age` seconds; empty where they are known."""
        seconds = self._clock.monotonic() - self._seen_at
        return self._problem or ("" if seconds <= age else f"the slots were read {seconds:.0f} s ago")

    def change(self, change: Callable[[Slots], Slots]) -> Slots:
        """Change them as they stand now; what `change` raises leaves them as they are."""
        changed = change_slots(self._api, self._namespace, change)
        # what was read meanwhile may be from before it
        return self._keep(changed, self._clock.monotonic())

    def _keep(self, slots: Slots, began: float) -> Slots:
        with self._turn:
            if began >= self._seen_at:
                self._seen, self._seen_at = slots, began
        return slots
