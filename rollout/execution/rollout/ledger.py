"""A rollout's results: those so far, those that an earlier process has left, and what came of undoing one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rollout.execution.record.record import Health
from rollout.model.finding import Finding
from rollout.model.plan import PlannedNode
from rollout.model.progress import NodeResult, NotDone, NotStarted, Outcome, Phase
from rollout.wording import text


@dataclass(slots=True)
class Ledger:
    """The rollout's results so far.

    `cordoned_before` are nodes that an earlier process failed and left cordoned, `failures_before`
    is how many of its failures count.
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
        return self.cordoned_before | {
            result.node for result in self.finished if result.left_cordoned
        }

    @property
    def fenced(self) -> bool:
        """Whether a node met a lost Lease."""
        return any(result.outcome is Outcome.FENCED for result in self.finished)

    @property
    def complete(self) -> bool:
        """Whether nothing is left that could be gone on with."""
        return not (
            self.cordoned_before
            or self.not_started
            or any(not result.succeeded for result in self.finished)
        )

    def has(self, node: str) -> bool:
        """Tell whether this node has ended, or was given up."""
        given_up = {entry.node for entry in (*self.skipped, *self.not_started)}
        return node in given_up or any(result.node == node for result in self.finished)

    def take(self, result: NodeResult) -> None:
        """Note a node's end; one that was given back because this process is on it was not to be begun."""
        if result.outcome is Outcome.ABORTED and result.reason is None:
            self.not_started.append(NotStarted(result.node, result.message))
        elif result.outcome in (Outcome.SKIPPED, Outcome.ABORTED):
            skipped = NotStarted(
                node=result.node,
                message=result.message,
                reason=result.reason,
                was_begun=result.phase is not Phase.PENDING,
                finding=result.finding,
            )
            self.skipped.append(skipped)
        else:
            self.finished.append(result)

    def give_up(self, nodes: Sequence[PlannedNode], why: Finding) -> None:
        """Note nodes that will not be started."""
        message = text(why)
        self.not_started.extend(NotStarted(node.name, message, finding=why) for node in nodes)


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What an earlier process has left of this run.

    `begun` maps nodes to the run whose marks they carry; `left` are nodes that failed and stay
    cordoned. `health` is what was well before the wave that was interrupted, None where that is not
    known. `failures` are as many as count towards the most that are allowed; `failed` are the nodes
    that failed and are not tried again. `stranded` are the ends of begun nodes that this process
    cannot go on with. `retried` are nodes that failed and are tried again, given back by then or
    not. `left_over` are nodes that it was to take, and that the plan of this process leaves out.
    `blocked` is why no other node may be started besides those, None if others may.
    """

    begun: Mapping[str, str] = field(default_factory=dict)
    left_cordoned: frozenset[str] = frozenset()
    health: Health | None = None
    failures: int = 0
    failed: tuple[NotDone, ...] = ()
    stranded: tuple[NodeResult, ...] = ()
    retried: frozenset[str] = frozenset()
    left_over: tuple[str, ...] = ()
    blocked: Finding | None = None


@dataclass(frozen=True, slots=True)
class Aborted:
    """What came of it: nodes that are as they were before, and those that could not be made so, each with why.

    `run` is empty where neither a record nor a mark names it. `untainted` are the nodes that had
    its soft taint, `left_tainted` those on which it stays, each with why. `stopped`: it was asked
    to end before it was done. `stops_passes`: unattended passes start no node from now on.
    `versions` are the versions that the hosts run, by node, as far as known.
    """

    run: str
    reverted: tuple[str, ...]
    left_cordoned: Mapping[str, str]
    untainted: tuple[str, ...] = ()
    left_tainted: Mapping[str, str] = field(default_factory=dict)
    stopped: bool = False
    stops_passes: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What the server would do with one node: evictions it would allow now, and what it objects to."""

    node: str
    evictions: int
    objections: tuple[str, ...]
