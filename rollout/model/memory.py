"""What outlives a rollout: which nodes failed, which versions did, and whether everything is paused.

It stands on the cluster, so that a pass of tomorrow, from another machine, knows of tonight's.
Times are RFC 3339 in UTC by the API server's clock, the only one that all passes share.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from rollout.model.text import excerpt, joined
from rollout.model.timestamps import parse_timestamp

# What is kept: 970 kB at the very most, of the mebibyte that a ConfigMap holds. Of versions the
# latest are kept, and older ones where they are held, with a few of their nodes.
MOST_NODES = 1000
MOST_VERSIONS = 100
LATEST_VERSIONS = 10
# A version that failed on so many is held, whatever --max-failures says.
MOST_NODES_OF_VERSION = 150
# In characters.
_LONGEST_PAUSE = 400


@dataclass(frozen=True, slots=True)
class Pause:
    """Who paused a node, or all, when and why; `until` is when it ends by itself, empty for never."""

    by: str = ""
    at: str = ""
    reason: str = ""
    until: str = ""

    def is_over(self, now: datetime | None) -> bool:
        """Whether it has ended by itself; not where the time is unknown, or its end is not understood."""
        end = parse_timestamp(self.until)
        return end is not None and now is not None and end <= now

    @property
    def details(self) -> str:
        """Return `by ada until 2026-11-23T06:00:00Z: no reboots during the sale`, in one line."""
        by = f"by {self.by}" if self.by else ""
        until = f"until {self.until}" if self.until else ""
        return excerpt(joined(": ", joined(" ", by, until), self.reason), _LONGEST_PAUSE)

    def __str__(self) -> str:
        separator = " " if self.by or self.until else ": "
        return joined(separator, "paused", self.details)


@dataclass(frozen=True, slots=True)
class NodeFailures:
    """How often a node failed since it last succeeded, and its last failure: when, how, in which rollout.

    `version` is the one that failed on it, empty where the failure was not the version's.
    """

    failures: int
    at: str
    outcome: str
    run: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class VersionFailures:
    """The nodes on which a version failed, in that order, and when last; `held_since` is empty where it is not held."""

    nodes: tuple[str, ...]
    at: str
    held_since: str = ""


@dataclass(frozen=True, slots=True)
class Slip:
    """A date that is going to be missed: by when all was to be done, when it will be, and since when that is known.

    `finish` is empty where nothing would be done in two years of windows.
    """

    by: str
    finish: str
    since: str

    def __str__(self) -> str:
        """`operate is not done by 2026-11-23T06:00Z: its forecast is 2026-11-24T01:12:00Z`; one line."""
        forecast = (
            f"its forecast is {self.finish}"
            if self.finish
            else "no window of the next two years is enough"
        )
        return excerpt(f"operate is not done by {self.by}: {forecast}", _LONGEST_PAUSE)


@dataclass(frozen=True, slots=True)
class Memory:
    """All of it. `pause` is of all nodes, None where there is none.

    `aborted` says who aborted a rollout, and as its reason which: no unattended pass begins another
    by itself. `evidence` is when the latest evidence of each version was made that has counted.
    `slip` is of the date that `operate` is to be done by, None while it is in time. `waited_for` is
    the rollout of people for which passes have waited for a day, and told of it. `problem` says why
    what stands on the cluster cannot be read, and is empty if it can be: nothing begins without it.
    `denied`: this user may not read it.
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
    def way_out(self) -> str:
        """What to do about its problem."""
        if self.denied:
            return (
                "Get the right granted: `rollout manifests roles` prints a ClusterRole and Roles"
                " with every right."
            )
        return "Reset it, which ends every hold, rest and pause of all nodes: rollout release --all"


NO_MEMORY = Memory()
