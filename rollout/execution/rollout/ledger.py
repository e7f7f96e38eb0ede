"""A rollout's results so far."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rollout.model.plan import PlannedNode
from rollout.model.progress import NodeResult, NotStarted, Outcome


@dataclass(slots=True)
class Ledger:
    """The rollout's results so far.

    `cordoned_before` are nodes that an earlier process failed and left cordoned, `failures_before` is how many of its
    failures count.
    """

    finished: list[NodeResult] = field(default_factory=list)
    skipped: list[NotStarted] = field(default_factory=list)
    not_started: list[NotStarted] = field(default_factory=list)
    cordoned_before: frozenset[str] = frozenset()
    failures_before: int = 0

    @property
    def failures(self) -> int:
        """How many nodes have failed."""
        return self.failures_before + sum(1 for result in self.finished if not result.succeeded)

    @property
    def away(self) -> frozenset[str]:
        """Nodes that failed and stayed cordoned: they use up the limit."""
        return self.cordoned_before | {result.node for result in self.finished if result.left_cordoned}

    @property
    def fenced(self) -> bool:
        """Whether a node met a lost Lease."""
        return any(result.outcome is Outcome.FENCED for result in self.finished)

    @property
    def complete(self) -> bool:
        """Whether nothing is left that could be gone on with."""
        return not (self.cordoned_before or self.not_started or any(not result.succeeded for result in self.finished))

    def take(self, result: NodeResult) -> None:
        """Note a node's end; one that was given back because this process is on it was not to be begun."""
        if result.outcome is Outcome.ABORTED and result.reason is None:
            self.not_started.append(NotStarted(result.node, result.message))
        elif result.outcome in (Outcome.SKIPPED, Outcome.ABORTED):
            self.skipped.append(NotStarted(result.node, result.message, result.reason))
        else:
            self.finished.append(result)

    def give_up(self, nodes: Sequence[PlannedNode], why: str) -> None:
        """Note nodes whose turn will not come."""
        self.not_started.extend(NotStarted(node.name, why) for node in nodes)
