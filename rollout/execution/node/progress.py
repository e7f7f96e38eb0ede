"""Where one node's run stands."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rollout.execution.node.transitions import advance
from rollout.gather.hosts.boot import BootFacts
from rollout.model.detection import Source
from rollout.model.progress import Phase


@dataclass(frozen=True, slots=True)
class Progress:
    """The phase, and what the run has learnt on the way.

    `marked`: our marks stand on the Node. `in_doubt`: an earlier process may or may not have asked for the reboot.
    `drains`: how often it went back to draining, as pods had come again. `targets` are what the sources that asked for
    the reboot have to be shown after it. `note` is what is worth telling of a node that succeeds, `unmoved` as of a
    `NodeResult`. `endings` are those of the last drain, in seconds by owner.
    """

    phase: Phase = Phase.PENDING
    staged_version: str = ""
    boot: BootFacts | None = None
    marked: bool = False
    in_doubt: bool = False
    drains: int = 0
    targets: Mapping[Source, str] = field(default_factory=dict)
    note: str = ""
    unmoved: int = 0
    endings: tuple[tuple[str, float], ...] = ()

    def to(self, phase: Phase) -> "Progress":
        """The same, one phase on."""
        return replace(self, phase=advance(self.phase, phase))

    @property
    def version(self) -> str:
        """The version that the host is known to run, as far as this run has seen."""
        return self.boot.version if self.boot else ""
