from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct, field

from rollout.model.text import excerpt, joined
from rollout.model.timestamps import parse_timestamp

# This is under 970 kB of a ConfigMap's 1 MiB; old versions that are not held go first.
MOST_NODES = 1000
MOST_VERSIONS = 100
LATEST_VERSIONS = 10
# With so many, the version is held anyway.
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
    # Empty if only `rollout unpause` ends it.
    until: str = ""

    def is_over(self, now: datetime | None) -> bool:
        """Whether the pause is over; False without a time."""
        end = parse_timestamp(self.until)
        return end is not None and now is not None and end <= now

    @property
    def details(self) -> str:
        """Return `by ada until 2026-11-23T06:00:00Z: a sale`."""
        by = f"by {self.by}" if self.by else ""
        until = f"until {self.until}" if self.until else ""
        by_until = joined(" ", by, until)
        return excerpt(joined(": ", by_until, self.reason), _MOST_CHARACTERS)

    def __str__(self) -> str:
        separator = " " if self.by or self.until else ": "
        return joined(separator, "paused", self.details)


class NodeFailures(Struct, frozen=True):
    """A node's failures since its last success."""

    failures: int
    at: str
    outcome: str
    run: str = ""
    # Empty if the version was not at fault.
    version: str = ""


class VersionFailures(Struct, frozen=True):
    """A version's failures and hold. No node may boot a held one."""

    # In order of failure.
    nodes: tuple[str, ...]
    at: str
    # Empty if not held.
    held_since: str = ""
    # Empty if its failures hold it.
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
    """What is known of earlier rollouts."""

    nodes: Mapping[str, NodeFailures] = field(default_factory=dict)
    versions: Mapping[str, VersionFailures] = field(default_factory=dict)
    pause: Pause | None = None
    # The reason is the rollout's ID.
    aborted: Pause | None = None
    # The latest, by version.
    evidence: Mapping[str, str] = field(default_factory=dict)
    # The stored name is older.
    missed_deadline: MissedDeadline | None = field(name="slip", default=None)
    # A person's rollout that passes waited a day for, or empty.
    waited_for: str = ""
    # If set, nothing starts.
    why_unreadable: str = ""
    denied: bool = False

    @property
    def fix(self) -> str:
        """Return how to make it readable."""
        if self.denied:
            return RIGHTS_FIX
        return f"{RESET_EFFECT}: {RESET_COMMAND}"


NO_MEMORY = Memory()
