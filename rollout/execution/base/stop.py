"""Whether this process may act, and whether it is to stop: asked before every act.

After a wish to stop no further node is started, and those not rebooting yet may have to go back.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from rollout.execution.base.deadline import Deadline


@dataclass
class StopRequest:
    """A wish that no further node be started. Those in flight finish; `revert`: those not rebooting go back.

    It is wished by whoever asks, or has asked for `ending`, and by itself at the `end`.
    """

    end: Deadline | None = None
    ending: "StopRequest | None" = None
    revert: bool = False
    _event: threading.Event = field(default_factory=threading.Event)
    _last_acts: list[Callable[[], object]] = field(default_factory=list)

    def before_leaving(self, act: Callable[[], object]) -> None:
        """Have this done where the process is to end at once; it has a few seconds."""
        self._last_acts.append(act)

    def leave(self) -> None:
        """Do what has to be done before the process ends at once; in a thread of its own, for it may hang."""
        for act in self._last_acts:
            with suppress(Exception):
                act()

    def request(self) -> None:
        """Wish it; more than once is the same as once."""
        self._event.set()

    @property
    def asked(self) -> bool:
        """Whether somebody wished it."""
        return self._event.is_set() or (self.ending is not None and self.ending.requested)

    @property
    def requested(self) -> bool:
        """Whether somebody wished it, or time is up."""
        return self.asked or (self.end is not None and self.end.expired)

    @property
    def reverting(self) -> bool:
        """Whether nodes that are not rebooting yet are to be given back."""
        return self.revert and self.requested

    @property
    def why(self) -> str:
        """What keeps further nodes from being started, once it is wished."""
        return "stopped on request" if self.asked or not self.end else "the time of --active-deadline is up"

    def wait(self, seconds: float) -> bool:
        """Sleep for `seconds`, or until it is wished; whether it was."""
        self._event.wait(seconds if self.end is None else min(seconds, self.end.remaining))
        return self.requested


Guard = Callable[[], None]
"""Return while this process may act; `FencedError` where it may not."""
