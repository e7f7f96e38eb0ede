"""What is remembered in the cluster after a rollout: failures and pauses.

Times are RFC 3339 in UTC by the API server's clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from rollout.model.text import excerpt, joined
from rollout.model.timestamps import parse_timestamp

# These limits keep the memory under 970 kB, because a ConfigMap holds 1 MiB. Old versions are
# dropped first, unless held.
MOST_NODES = 1000
MOST_VERSIONS = 100
LATEST_VERSIONS = 10
# A version that failed on this many nodes is held anyway.
MOST_NODES_OF_VERSION = 150
_MOST_CHARACTERS = 400
RIGHTS_FIX = (
    "Ask an administrator to grant it: `rollout manifests roles` prints a ClusterRole and Roles"
    " with every permission."
)


@dataclass(frozen=True, slots=True)
class Pause:
    """Who paused a node or all nodes, when and why; `until` is empty for never."""

    by: str = ""
    at: str = ""
    reason: str = ""
    until: str = ""

    def is_over(self, now: datetime | None) -> bool:
        """Whether the pause has ended by itself."""
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
        separator = " " if self.by or self.until else ": "
        return joined(separator, "paused", self.details)


@dataclass(frozen=True, slots=True)
class NodeFailures:
    """A node's failures since it last succeeded; `at` and `outcome` are the last one's.

    `version` is empty if it was not at fault.
    """

    failures: int
    at: str
    outcome: str
    run: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class VersionFailures:
    """The nodes on which a version failed, in that order; `at` is the last failure.

    `held_since` is empty if it is not held. `held_by` is who ran `rollout hold` or a rollback;
    empty if its failures hold it.
    """

    nodes: tuple[str, ...]
    at: str
    held_since: str = ""
    held_by: str = ""


@dataclass(frozen=True, slots=True)
class Slip:
    """A forecast that misses `operate.finish-by`.

    `finish` is empty if two years are not enough.
    """

    by: str
    finish: str
    since: str

    def __str__(self) -> str:
        forecast = "no window of the next two years is enough"
        if self.finish:
            forecast = f"its forecast is {self.finish}"
        return excerpt(f"operate is not done by {self.by}: {forecast}", _MOST_CHARACTERS)


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered. `pause` is the pause of all nodes, or None.

    `aborted` says who aborted a rollout, whose ID is its `reason`: unattended passes then start
    none. `evidence` is when the latest valid evidence was made, by version. `waited_for` is a
    person's rollout that passes have awaited for a day. `problem` is why the memory is unreadable,
    so that nothing starts.
    """

    nodes: Mapping[str, NodeFailures] = field(default_factory=dict)
    versions: Mapping[str, VersionFailures] = field(default_factory=dict)
    pause: Pause | None = None
    aborted: Pause | None = None
    evidence: Mapping[str, str] = field(default_factory=dict)
    slip: Slip | None = None
    waited_for: str = ""
    problem: str = ""
    denied: bool = False

    @property
    def fix(self) -> str:
        """Return how to fix the problem."""
        if self.denied:
            return RIGHTS_FIX
        return "Reset it, which ends every hold, rest and pause of all nodes: rollout release --all"


NO_MEMORY = Memory()
