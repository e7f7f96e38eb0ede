from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct, field

from rollout.model.text import excerpt, joined
from rollout.model.timestamps import parse_timestamp

# These keep the memory under 970 kB of a ConfigMap's 1 MiB; old versions that are not held go
# first.
MOST_NODES = 1000
MOST_VERSIONS = 100
LATEST_VERSIONS = 10
# A version that failed on this many nodes is held anyway.
MOST_NODES_OF_VERSION = 150
_MOST_CHARACTERS = 400
RESET_EFFECT = "Reset it, which ends every hold and back-off, and the pause of all nodes"
RESET_COMMAND = "rollout release --all"
RIGHTS_FIX = (
    "Ask an administrator to grant it: `rollout manifests roles` prints a ClusterRole and Roles"
    " with every permission."
)


class Pause(Struct, frozen=True):
    """Who paused a node or all nodes, when and why."""

    by: str = ""
    at: str = ""
    reason: str = ""
    # Empty if it ends only by `rollout unpause`.
    until: str = ""

    def is_over(self, now: datetime | None) -> bool:
        """Whether the pause has ended by itself; False if the time is unknown (`now` None)."""
        end = parse_timestamp(self.until)
        return end is not None and now is not None and end <= now

    @property
    def details(self) -> str:
        """Return `by ada until 2026-11-23T06:00:00Z: no reboots during the sale`."""
        by = f"by {self.by}" if self.by else ""
        until = f"until {self.until}" if self.until else ""
        by_until = joined(" ", by, until)
        return excerpt(joined(": ", by_until, self.reason), _MOST_CHARACTERS)

    def __str__(self) -> str:
        # `paused by ada: why`, but `paused: why`.
        separator = " " if self.by or self.until else ": "
        return joined(separator, "paused", self.details)


class NodeFailures(Struct, frozen=True):
    """A node's failures since it last succeeded."""

    failures: int
    # When the last failure was.
    at: str
    outcome: str
    run: str = ""
    # Empty if the version was not at fault.
    version: str = ""


class VersionFailures(Struct, frozen=True):
    """The failures of a version, and its hold: no node is rebooted into a held version."""

    # Where it failed, in order, and when it last did.
    nodes: tuple[str, ...]
    at: str
    # Empty if it is not held.
    held_since: str = ""
    # Who ran `rollout hold` or a rollback; empty if its failures hold it.
    held_by: str = ""

    @property
    def is_held(self) -> bool:
        """Whether the version is held."""
        return bool(self.held_since)


class MissedDeadline(Struct, frozen=True):
    """A forecast that misses `operate.finish-by`."""

    by: str
    # Empty if two years are not enough.
    finish: str
    since: str

    def __str__(self) -> str:
        forecast = "the windows in the next two years are too short"
        if self.finish:
            forecast = f"its forecast is {self.finish}"
        return excerpt(f"operate misses the deadline {self.by}: {forecast}", _MOST_CHARACTERS)


class Memory(Struct, frozen=True):
    """What the cluster remembers of earlier rollouts."""

    nodes: Mapping[str, NodeFailures] = field(default_factory=dict)
    versions: Mapping[str, VersionFailures] = field(default_factory=dict)
    pause: Pause | None = None
    # Who aborted a rollout; its ID is the reason.
    aborted: Pause | None = None
    # The time of the latest valid evidence, by version.
    evidence: Mapping[str, str] = field(default_factory=dict)
    # The stored name is older than this one.
    missed_deadline: MissedDeadline | None = field(name="slip", default=None)
    # A person's rollout that passes have waited a day for, or empty.
    waited_for: str = ""
    # If not empty, nothing starts.
    why_unreadable: str = ""
    # It is unreadable because a permission is missing.
    denied: bool = False

    @property
    def fix(self) -> str:
        """Return how to make the memory readable."""
        if self.denied:
            return RIGHTS_FIX
        return f"{RESET_EFFECT}: {RESET_COMMAND}"


NO_MEMORY = Memory()
